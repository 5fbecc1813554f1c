// Reading plan graphs and executing their steps; library calls are in library_call.cpp. See include/graph.h.
#include "include/graph.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/empty_strided_ops.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <dlfcn.h>

#include <atomic>

#include "include/bridge.h"
#include "include/dtype.h"

namespace aotcompile {

namespace {

std::atomic<bool> forked{false};

// Kernels with more elements than this run without the GIL; below it, giving it up costs more than the kernel.
constexpr int64_t kLongWork = 32768;

c10::ScalarType dtype_of(PyObject* name) {
  c10::ScalarType result;
  if (!parse_dtype(text_of(name), result)) unsupported("dtype " + text_of(name));
  return result;
}

// The parent's thread team does not exist in a forked child and waiting for it would hang: one thread needs no team.
class OneThread {
 public:
  OneThread() {
    if (!forked.load(std::memory_order_relaxed)) return;
    static auto get = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
    static auto set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    if (get == nullptr || set == nullptr) return;
    restore_ = set;
    previous_ = get();
    set(1);
  }
  ~OneThread() {
    if (restore_ != nullptr) restore_(previous_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  void (*restore_)(int) = nullptr;
  int previous_ = 1;
};

class AllocateStep : public Step {
 public:
  void run(Run& run) const override {
    Sizes::Storage size_storage, stride_storage;
    run.set(buffer, allocate(sizes.evaluate(run, size_storage), strides.evaluate(run, stride_storage), dtype, device));
  }
  int buffer = 0;
  Sizes sizes, strides;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::Device device = c10::DeviceType::CPU;
};

// The same memory under other sizes. Built by hand: `as_strided` would go through the dispatcher.
class ViewStep : public Step {
 public:
  void run(Run& run) const override {
    const at::Tensor& source = run.buffer(base);
    require(source.defined() && source.has_storage(), "a view of a buffer that holds no memory");
    Sizes::Storage size_storage, stride_storage;
    const c10::IntArrayRef new_sizes = sizes.evaluate(run, size_storage), new_strides = strides.evaluate(run, stride_storage);
    const auto item_size = static_cast<int64_t>(c10::elementSize(dtype));
    const int64_t first = source.storage_offset() * static_cast<int64_t>(source.itemsize());
    require(first % item_size == 0, "a view of memory that starts at no multiple of its element size");
    const int64_t new_offset = first / item_size + offset.evaluate(run.symbols.data());
    int64_t extent = 1;
    for (size_t i = 0; i < new_sizes.size(); ++i) extent = new_sizes[i] == 0 || extent == 0 ? 0 : extent + (new_sizes[i] - 1) * new_strides[i];
    require(new_offset >= 0 && (extent == 0 || static_cast<size_t>((new_offset + extent) * item_size) <= source.storage().nbytes()),
            "a view reaches outside of its base's memory");
    at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(source.storage()), source.key_set(),
                                                                 c10::scalarTypeToTypeMeta(dtype));
    result.unsafeGetTensorImpl()->set_sizes_and_strides(new_sizes, new_strides, new_offset);
    run.set(buffer, std::move(result));
  }
  int buffer = 0, base = 0;
  Sizes sizes, strides;
  Expression offset;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
};

class KernelStep : public Step {
 public:
  void run(Run& run) const override {
    c10::SmallVector<void*, 16> pointers;
    int64_t elements = 0;
    for (const int buffer : buffers) {
      const at::Tensor& tensor = run.buffer(buffer);
      if (!tensor.defined()) throw GraphError("kernel " + name + " got a buffer that holds no tensor");
      pointers.push_back(tensor.data_ptr());
      elements += tensor.numel();
    }
    Sizes::Storage storage;
    const int64_t* size_values = sizes.evaluate(run, storage).data();
    if (elements > kLongWork) run.release_gil();
    const OneThread one_thread;
    const int32_t status = function(pointers.data(), size_values);
    if (status != 0) throw KernelFailure(name, status);
  }
  std::string name;
  KernelFunction function = nullptr;
  std::vector<int> buffers;
  Sizes sizes;
};

class ReadScalarStep : public Step {
 public:
  void run(Run& run) const override {
    run.symbols[static_cast<size_t>(symbol)] = at::_ops::_local_scalar_dense::call(run.buffer(buffer)).toLong();
  }
  int symbol = 0, buffer = 0;
};

class CheckStep : public Step {
 public:
  void run(Run& run) const override {
    if (condition.evaluate(run.symbols.data()) == 0) throw KernelFailure(text, 3);
  }
  Expression condition;
  std::string text;
};

class FreeStep : public Step {
 public:
  void run(Run& run) const override { run.set(buffer, at::Tensor()); }
  int buffer = 0;
};

std::unique_ptr<Step> make_allocate(GraphReader& reader, PyObject* plan) {
  auto step = std::make_unique<AllocateStep>();
  step->buffer = reader.define(text_of(field(plan, "name")));
  step->sizes = reader.sizes(field(plan, "sizes"));
  step->strides = reader.sizes(field(plan, "strides"));
  step->dtype = dtype_of(field(plan, "dtype"));
  step->device = c10::Device(text_of(field(plan, "device")));
  return step;
}

std::unique_ptr<Step> make_view(GraphReader& reader, PyObject* plan) {
  auto step = std::make_unique<ViewStep>();
  step->base = reader.find(field(plan, "base"));
  step->buffer = reader.define(text_of(field(plan, "name")));
  step->sizes = reader.sizes(field(plan, "sizes"));
  step->strides = reader.sizes(field(plan, "strides"));
  if (step->sizes.size() != step->strides.size()) fail(PyExc_ValueError, "a view needs as many strides as sizes");
  step->offset = reader.expression(field(plan, "offset"));
  step->dtype = dtype_of(field(plan, "dtype"));
  return step;
}

std::unique_ptr<Step> make_kernel(GraphReader& reader, PyObject* plan, PyObject* kernels) {
  if (optional_field(plan, "grid") != nullptr) unsupported("GPU kernels");
  auto step = std::make_unique<KernelStep>();
  step->name = text_of(field(plan, "kernel"));
  PyObject* address = PyDict_GetItemString(kernels, step->name.c_str());
  if (address == nullptr) fail(PyExc_KeyError, "no address for kernel " + step->name);
  step->function = reinterpret_cast<KernelFunction>(PyLong_AsVoidPtr(address));
  if (step->function == nullptr) {
    if (PyErr_Occurred()) throw PythonErrorSet{};
    fail(PyExc_ValueError, "the address of kernel " + step->name + " is null");
  }
  PyObject* buffers = field(plan, "buffers");
  for (Py_ssize_t i = 0; i < length_of(buffers); ++i) step->buffers.push_back(reader.find(item_of(buffers, i)));
  step->sizes = reader.sizes(field(plan, "sizes"));
  return step;
}

std::unique_ptr<Step> make_step(GraphReader& reader, PyObject* plan, PyObject* kernels) {
  const std::string kind = text_of(field(plan, "step"));
  if (kind == "allocate") return make_allocate(reader, plan);
  if (kind == "view") return make_view(reader, plan);
  if (kind == "kernel") return make_kernel(reader, plan, kernels);
  if (kind == "call") return make_library_call(reader, plan);
  if (kind == "read_scalar") {
    auto step = std::make_unique<ReadScalarStep>();
    step->buffer = reader.find(field(plan, "buffer"));
    step->symbol = reader.symbols.add(text_of(field(plan, "symbol")));
    return step;
  }
  if (kind == "check") {
    auto step = std::make_unique<CheckStep>();
    step->text = text_of(field(plan, "condition"));
    step->condition = reader.expression(field(plan, "condition"));
    return step;
  }
  if (kind == "free") {
    auto step = std::make_unique<FreeStep>();
    step->buffer = reader.define(text_of(field(plan, "name")));
    return step;
  }
  unsupported("plan step " + kind);
}

// Whether the step calls an operator that asks for the grad mode itself, for a result that it gives under it only (the Python twin: executor.py).
bool needs_grad_mode(PyObject* plan) {
  if (text_of(field(plan, "step")) != "call" || text_of(field(plan, "operator")) != "aten.mkldnn_rnn_layer.default") return false;
  return item_of(field(plan, "results"), 3) != Py_None;
}

at::Tensor number_tensor(const InputValue& number) {
  at::Tensor result = allocate({}, {}, number.is_float ? c10::ScalarType::Double : c10::ScalarType::Long, c10::DeviceType::CPU);
  if (number.is_float) {
    *static_cast<double*>(result.data_ptr()) = number.real;
  } else {
    *static_cast<int64_t*>(result.data_ptr()) = number.integer;
  }
  return result;
}

// The same memory in a tensor object of its own, for library calls: their argument stacks own their tensors (see Run).
at::Tensor alias_of(const at::Tensor& tensor) {
  return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(0), /*allow_tensor_metadata_change=*/true));
}

}  // namespace

void mark_forked() { forked.store(true, std::memory_order_relaxed); }

at::Tensor allocate(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype, c10::Device device) {
  if (device.is_cpu()) return at::Tensor(at::detail::empty_strided_cpu(sizes, strides, dtype));
  return at::_ops::empty_strided::call(c10::fromIntArrayRefSlow(sizes), c10::fromIntArrayRefSlow(strides), dtype, std::nullopt, device, std::nullopt);
}

Sizes::Sizes(std::vector<Expression> parts) : parts_(std::move(parts)) {
  bool all_known = true;
  for (const Expression& part : parts_) {
    known_.push_back(part.is_constant() ? part.constant() : 0);
    all_known &= part.is_constant();
  }
  if (all_known) parts_.clear();
}

c10::IntArrayRef Sizes::evaluate(const Run& run, Storage& storage) const {
  if (parts_.empty()) return known_;
  storage.clear();
  for (const Expression& part : parts_) storage.push_back(part.evaluate(run.symbols.data()));
  return storage;
}

int GraphReader::define(const std::string& name) {
  const auto [place, is_new] = buffers.try_emplace(name, static_cast<int>(buffers.size()));
  if (is_new) {
    read.push_back(false);
    called.push_back(false);
  }
  return place->second;
}

int GraphReader::find(PyObject* name) {
  const auto place = buffers.find(text_of(name));
  if (place == buffers.end()) fail(PyExc_ValueError, "the plan reads buffer " + text_of(name) + " before it exists");
  read[static_cast<size_t>(place->second)] = true;
  return place->second;
}

Expression GraphReader::expression(PyObject* size) {
  return PyUnicode_Check(size) ? Expression::parse(text_of(size), symbols) : Expression(integer_of(size));
}

Sizes GraphReader::sizes(PyObject* list) {
  std::vector<Expression> parts;
  for (Py_ssize_t i = 0; i < length_of(list); ++i) parts.push_back(expression(item_of(list, i)));
  return Sizes(std::move(parts));
}

Graph::Graph(PyObject* plan, PyObject* kernels) {
  GraphReader reader;
  if (!PyDict_Check(kernels)) fail(PyExc_TypeError, "kernels must be a dict of addresses");
  PyObject* inputs = field(plan, "inputs");
  input_count_ = static_cast<size_t>(length_of(inputs));
  for (Py_ssize_t i = 0; i < length_of(inputs); ++i) reader.define(text_of(item_of(inputs, i)));
  if (reader.buffers.size() != input_count_) fail(PyExc_ValueError, "two graph inputs have one name");
  PyObject* symbols = field(plan, "symbols");
  for (Py_ssize_t i = 0; i < length_of(symbols); ++i) {
    PyObject* symbol = item_of(symbols, i);
    const int64_t input = integer_of(item_of(symbol, 1)), dimension = integer_of(item_of(symbol, 2));
    if (input < 0 || input >= static_cast<int64_t>(input_count_)) fail(PyExc_ValueError, "a symbol of an input that does not exist");
    symbols_.push_back({reader.symbols.add(text_of(item_of(symbol, 0))), static_cast<size_t>(input), static_cast<int>(dimension)});
  }
  PyObject* steps = field(plan, "steps");
  for (Py_ssize_t i = 0; i < length_of(steps); ++i) {
    steps_.push_back(make_step(reader, item_of(steps, i), kernels));
    needs_grad_mode_ |= needs_grad_mode(item_of(steps, i));
  }
  PyObject* outputs = field(plan, "outputs");
  for (Py_ssize_t i = 0; i < length_of(outputs); ++i) {
    PyObject* output = item_of(outputs, i);
    if (PyObject* buffer = PyDict_Check(output) ? PyDict_GetItemString(output, "buffer") : nullptr) {
      outputs_.push_back({Output::Kind::Buffer, reader.find(buffer), Expression(), Ref(), true});
    } else if (PyObject* size = PyDict_Check(output) ? PyDict_GetItemString(output, "size") : nullptr) {
      outputs_.push_back({Output::Kind::Size, -1, reader.expression(size), Ref(), false});
    } else {
      PyObject* constant = field(output, "constant");
      if (PyDict_Check(constant) || PyList_Check(constant)) unsupported("a constant output that is no number, text or None");
      outputs_.push_back({Output::Kind::Constant, -1, Expression(), Ref::borrow(constant), false});
    }
  }
  for (Output& output : outputs_) {
    for (const Output& other : outputs_) output.only_here = output.only_here && (&other == &output || other.buffer != output.buffer);
  }
  buffer_count_ = reader.buffers.size();
  symbol_count_ = static_cast<size_t>(reader.symbols.size());
  const auto input_end = static_cast<std::ptrdiff_t>(input_count_);
  input_is_read_.assign(reader.read.begin(), reader.read.begin() + input_end);
  input_is_called_.assign(reader.called.begin(), reader.called.begin() + input_end);
}

void Graph::bind_inputs(const InputValue* inputs, Run& run) const {
  run.owned.resize(buffer_count_);
  run.referenced.resize(input_count_);
  run.symbols.assign(symbol_count_, 0);
  for (size_t i = 0; i < input_count_; ++i) {
    run.referenced[i] = inputs[i].tensor;
    if (inputs[i].tensor == nullptr && input_is_read_[i]) run.owned[i] = number_tensor(inputs[i]);
    if (inputs[i].tensor != nullptr && input_is_called_[i]) run.owned[i] = alias_of(*inputs[i].tensor);
  }
  for (const InputSymbol& symbol : symbols_) {
    const InputValue& input = inputs[symbol.input];
    int64_t value = input.integer;
    if (symbol.dimension >= 0) {
      if (input.tensor == nullptr || symbol.dimension >= input.tensor->dim()) {
        fail(PyExc_ValueError, "graph input " + std::to_string(symbol.input) + " has too few dimensions");
      }
      value = input.tensor->sizes()[static_cast<size_t>(symbol.dimension)];
    } else if (input.tensor != nullptr) {
      value = at::_ops::_local_scalar_dense::call(*input.tensor).toLong();
    } else {
      if (input.is_float) fail(PyExc_TypeError, "graph input " + std::to_string(symbol.input) + " must be an int");
    }
    run.symbols[static_cast<size_t>(symbol.symbol)] = value;
  }
}

void Graph::execute(const InputValue* inputs, Run& run) const {
  static const c10::DispatchKeySet below = c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;
  const c10::impl::ExcludeDispatchKeyGuard exclude(below);
  const c10::AutoGradMode grad_mode(needs_grad_mode_);
  c10::OptionalDeviceGuard device;
  for (size_t i = 0; i < input_count_; ++i) {
    if (inputs[i].tensor != nullptr && inputs[i].tensor->is_cuda()) {
      device.reset_device(inputs[i].tensor->device());
      break;
    }
  }
  bind_inputs(inputs, run);
  for (const auto& step : steps_) step->run(run);
  run.gil.reset();
}

PyObject* Graph::output(Run& run, size_t index, bool last) const {
  const Output& output = outputs_[index];
  switch (output.kind) {
    case Output::Kind::Buffer: {
      const auto buffer = static_cast<size_t>(output.buffer);
      if (buffer < input_count_ && run.referenced[buffer] != nullptr) return wrap_tensor(at::Tensor(*run.referenced[buffer]));
      return wrap_tensor(last && output.only_here ? std::move(run.owned[buffer]) : at::Tensor(run.owned[buffer]));
    }
    case Output::Kind::Size: return Ref::steal(PyLong_FromLongLong(output.size.evaluate(run.symbols.data()))).release();
    case Output::Kind::Constant: return Ref(output.constant).release();
  }
  return nullptr;
}

}  // namespace aotcompile
