// The guards that look at tensors: `tensor` and `different`.
#include <c10/core/DispatchKeySet.h>

#include <algorithm>

#include "include/bridge.h"
#include "include/dtype.h"
#include "include/guard.h"

namespace aotcompile {

namespace {

// Keys of an ordinary dense CPU or CUDA tensor. Others mean lazy conjugates and negatives, functorch wrappers, sparse or quantized memory, Python
// dispatch, ...
const uint64_t kOrdinaryKeys = c10::DispatchKeySet(c10::DispatchKey::CPU).raw_repr() | c10::DispatchKeySet(c10::DispatchKey::CUDA).raw_repr() |
                                   c10::autograd_dispatch_keyset_with_ADInplaceOrView.raw_repr() | c10::autocast_dispatch_keyset.raw_repr();

bool stride_matters(const at::Tensor& tensor, int64_t dimension) {
  return tensor.sizes()[static_cast<size_t>(dimension)] != 1 && tensor.numel() != 0;
}

// Tensors carry forward-mode tangents only while a level of it is open. Asking each tensor takes a lock per tensor.
bool carries_tangent(Frame& frame, const at::Tensor& tensor) {
  if (!frame.differentiates_forward) frame.differentiates_forward = forward_level_open();
  return *frame.differentiates_forward && tensor._fw_grad(0).defined();
}

class TensorGuard : public Guard {
 public:
  // A size or stride that is no plain integer.
  struct Symbolic {
    int dimension;
    bool stride, defines;
    Expression expected;
  };

  bool holds(Frame& frame, PyObject* value) override {
    const at::Tensor* found = tensor_of(value);
    if (found == nullptr || !found->defined()) return false;
    const at::Tensor& tensor = *found;
    if ((tensor.key_set().raw_repr() & ~kOrdinaryKeys) != 0 || tensor.scalar_type() != dtype || tensor.device().type() != device) return false;
    if (requires_grad >= 0 && tensor.requires_grad() != (requires_grad == 1)) return false;
    if (storage_offset >= 0 && tensor.storage_offset() != storage_offset) return false;
    if (is_leaf >= 0 && tensor.is_leaf() != (is_leaf == 1)) return false;
    if (tensor.unsafeGetTensorImpl()->autograd_meta() != nullptr && carries_tangent(frame, tensor)) return false;
    const c10::IntArrayRef found_sizes = tensor.sizes(), found_strides = tensor.strides();
    if (found_sizes.size() != sizes.size()) return false;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] != kSymbolic && sizes[i] != found_sizes[i]) return false;
    }
    for (size_t i = 0; i < strides.size(); ++i) {
      if (strides[i] != kSymbolic && strides[i] != found_strides[i] && stride_matters(tensor, static_cast<int64_t>(i))) return false;
    }
    for (const Symbolic& part : symbolic) {
      const auto dimension = static_cast<size_t>(part.dimension);
      if (part.defines) {
        frame.symbols[static_cast<size_t>(part.expected.plain_symbol())] = found_sizes[dimension];
      } else {
        const int64_t expected = part.expected.evaluate(frame.symbols.data());
        if (!part.stride && found_sizes[dimension] != expected) return false;
        if (part.stride && found_strides[dimension] != expected && stride_matters(tensor, part.dimension)) return false;
      }
    }
    return true;
  }

  static constexpr int64_t kSymbolic = -1;  // no size; strides of -1 do not exist in torch
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::DeviceType device = c10::DeviceType::CPU;
  int requires_grad = -1, is_leaf = -1;  // -1: not checked
  int64_t storage_offset = -1;
  std::vector<int64_t> sizes, strides;
  std::vector<Symbolic> symbolic;
};

int three_way(PyObject* flag) { return flag == nullptr ? -1 : flag == Py_True ? 1 : 0; }

void add_sizes(GuardBuilder& builder, TensorGuard& guard, PyObject* values, bool stride, int node) {
  std::vector<int64_t>& constants = stride ? guard.strides : guard.sizes;
  for (Py_ssize_t i = 0; i < length_of(values); ++i) {
    const int dimension = static_cast<int>(i);
    Expression expected = builder.parse(item_of(values, i));
    if (expected.is_constant()) {
      constants.push_back(expected.constant());
      continue;
    }
    constants.push_back(TensorGuard::kSymbolic);
    const int symbol = expected.plain_symbol();
    if (!stride && symbol >= 0 && builder.bound.insert(symbol).second) {
      guard.symbolic.push_back({dimension, false, true, std::move(expected)});
    } else if (builder.all_bound(expected)) {
      guard.symbolic.push_back({dimension, stride, false, std::move(expected)});
    } else {
      builder.deferred.push_back({builder.guard, node, dimension, stride, std::move(expected)});
    }
  }
}

// First and last byte that the tensor's elements occupy; an empty tensor occupies nothing.
std::pair<uintptr_t, uintptr_t> occupied(const at::Tensor& tensor) {
  if (tensor.numel() == 0 || !tensor.has_storage()) return {1, 0};
  int64_t extent = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) extent += (tensor.sizes()[static_cast<size_t>(i)] - 1) * tensor.strides()[static_cast<size_t>(i)];
  const auto item_size = static_cast<int64_t>(tensor.itemsize());
  const auto first = reinterpret_cast<uintptr_t>(tensor.storage().data()) + static_cast<uintptr_t>(tensor.storage_offset() * item_size);
  return {first, first + static_cast<uintptr_t>((extent + 1) * item_size) - 1};
}

// No byte of the tensor lies between the first and last byte of any of the others. (Interleaved tensors count as sharing: a miss is always safe.)
class DifferentGuard : public Guard {
 public:
  bool holds(Frame& frame, PyObject* value) override {
    const at::Tensor* tensor = tensor_of(value);
    if (tensor == nullptr) {  // a container or an object that is changed
      for (const int node : others) {
        if (frame.slots[static_cast<size_t>(node)] == value) return false;
      }
      return true;
    }
    if (!tensor->defined()) return false;
    const auto [first, last] = occupied(*tensor);
    for (const int node : others) {
      const at::Tensor* other = tensor_of(frame.slots[static_cast<size_t>(node)]);
      if (other == nullptr || !other->defined()) return false;
      if (other->device() != tensor->device()) continue;
      const auto [other_first, other_last] = occupied(*other);
      if (first <= last && other_first <= other_last && first <= other_last && other_first <= last) return false;
    }
    return true;
  }

  void add_nodes(std::vector<int>& nodes) const override { nodes.insert(nodes.end(), others.begin(), others.end()); }

  std::vector<int> others;
};

}  // namespace

bool tensor_geometry_is(PyObject* object, int dimension, bool stride, int64_t expected) {
  const at::Tensor* tensor = tensor_of(object);
  if (tensor == nullptr || dimension >= tensor->dim()) return false;
  const auto index = static_cast<size_t>(dimension);
  return stride ? tensor->strides()[index] == expected || !stride_matters(*tensor, dimension) : tensor->sizes()[index] == expected;
}

std::unique_ptr<Guard> make_tensor_guard(GuardBuilder& builder, PyObject* facts, int node) {
  auto guard = std::make_unique<TensorGuard>();
  const std::string dtype = text_of(field(facts, "dtype")), device = text_of(field(facts, "device"));
  if (!parse_dtype(dtype, guard->dtype)) unsupported("dtype " + dtype);
  if (device.compare(0, 4, "cuda") == 0) {
    guard->device = c10::DeviceType::CUDA;
  } else if (device != "cpu") {
    unsupported("device " + device);
  }
  guard->requires_grad = three_way(optional_field(facts, "requires_grad"));
  guard->is_leaf = three_way(optional_field(facts, "is_leaf"));
  if (PyObject* offset = optional_field(facts, "storage_offset"); offset != nullptr) guard->storage_offset = integer_of(offset);
  add_sizes(builder, *guard, field(facts, "sizes"), false, node);
  add_sizes(builder, *guard, field(facts, "strides"), true, node);
  if (guard->sizes.size() != guard->strides.size()) fail(PyExc_ValueError, "as many strides as sizes are needed");
  return guard;
}

std::unique_ptr<Guard> make_different_guard(GuardBuilder& builder, PyObject* paths) {
  auto guard = std::make_unique<DifferentGuard>();
  for (Py_ssize_t i = 0; i < length_of(paths); ++i) guard->others.push_back(builder.tree.add(item_of(paths, i), builder.context));
  return guard;
}

}  // namespace aotcompile
