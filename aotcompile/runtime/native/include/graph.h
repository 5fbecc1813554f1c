// A plan graph: compact steps over numbered buffers. Contract of the JSON form: codegen/types.py.
#pragma once

#include "expression.h"
#include "object.h"

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace aotcompile {

// A kernel returned a status other than 0; nothing that the user can see has changed.
struct KernelFailure : std::runtime_error {
  KernelFailure(const std::string& kernel, int status)
      : std::runtime_error("kernel " + kernel + " stopped with status " + std::to_string(status)), kernel(kernel), status(status) {}
  std::string kernel;
  int status;
};

// A graph and what it is run on do not fit. Our own class: TORCH_CHECK's is thrown by code of torch's compiler and not caught by another one's.
struct GraphError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void require(bool holds, const char* message) {
  if (!holds) throw GraphError(message);
}

using KernelFunction = int32_t (*)(void* const* buffers, const int64_t* sizes);

class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease() { PyEval_RestoreThread(state_); }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

// A graph input: a tensor, or a Python number (tensor == nullptr).
struct InputValue {
  const at::Tensor* tensor = nullptr;
  bool is_float = false;
  int64_t integer = 0;
  double real = 0;
};

// One execution of a graph. `gil` is the last member: the GIL is taken again before the buffers go.
//
// Inputs are referred to, not copied: a second C++ owner of a tensor that has a Python object makes torch take the GIL to keep that object alive.
struct Run {
  c10::SmallVector<at::Tensor, 16> owned;              // per buffer; undefined for most inputs
  c10::SmallVector<const at::Tensor*, 16> referenced;  // per input: the caller's tensor
  c10::SmallVector<int64_t, 8> symbols;
  std::optional<GilRelease> gil;

  const at::Tensor& buffer(int index) const {
    const at::Tensor& own = owned[static_cast<size_t>(index)];
    return !own.defined() && static_cast<size_t>(index) < referenced.size() && referenced[static_cast<size_t>(index)] != nullptr
               ? *referenced[static_cast<size_t>(index)] : own;
  }
  void set(int index, at::Tensor tensor) {
    owned[static_cast<size_t>(index)] = std::move(tensor);
    if (static_cast<size_t>(index) < referenced.size()) referenced[static_cast<size_t>(index)] = nullptr;
  }
  void release_gil() {
    if (!gil) gil.emplace();
  }
};

// Sizes of a tensor or a kernel: known, or computed per call.
class Sizes {
 public:
  using Storage = c10::SmallVector<int64_t, 8>;
  Sizes() = default;
  explicit Sizes(std::vector<Expression> parts);
  // The values; `storage` holds them if they had to be computed.
  c10::IntArrayRef evaluate(const Run& run, Storage& storage) const;
  size_t size() const { return known_.size(); }

 private:
  std::vector<Expression> parts_;  // empty when all are known
  std::vector<int64_t> known_;
};

class Step {
 public:
  virtual ~Step() = default;
  virtual void run(Run& run) const = 0;
};

// Names to numbers while a plan is read. Errors: KeyError, TypeError, ValueError for a malformed plan, NotImplementedError for what this code
// cannot run.
struct GraphReader {
  SymbolTable symbols;
  std::map<std::string, int> buffers;
  std::vector<bool> read, called;  // per buffer: some step or output reads it; a library call takes it

  int define(const std::string& name);      // the number of a buffer that a step makes
  int find(PyObject* name);                 // the number of a buffer that is read
  Expression expression(PyObject* size);    // an int or a text
  Sizes sizes(PyObject* list);
};

// The step for {"step": "call", ...}: an operator through torch's dispatcher (library_call.cpp).
std::unique_ptr<Step> make_library_call(GraphReader& reader, PyObject* step);

class Graph {
 public:
  Graph(PyObject* plan, PyObject* kernels);

  struct Output {
    enum class Kind { Buffer, Size, Constant } kind;
    int buffer = -1;
    Expression size;
    Ref constant;
    bool only_here = false;  // no other output is this buffer
  };

  size_t input_count() const { return input_count_; }
  size_t output_count() const { return outputs_.size(); }

  // Executes the steps. The GIL is held at entry and exit and released in between where the work is long. Throws KernelFailure, c10::Error, what
  // operators throw, ExpressionError. Autograd, view tracking, version counters and autocast are off inside.
  void execute(const InputValue* inputs, Run& run) const;
  // Output number `index` of an execution as a new reference. `last`: this output is not asked for again.
  PyObject* output(Run& run, size_t index, bool last) const;

 private:
  struct InputSymbol {
    int symbol;
    size_t input;
    int dimension;  // -1: the input itself is the number
  };
  void bind_inputs(const InputValue* inputs, Run& run) const;

  size_t input_count_ = 0, buffer_count_ = 0, symbol_count_ = 0;
  std::vector<bool> input_is_read_, input_is_called_;
  std::vector<InputSymbol> symbols_;
  std::vector<std::unique_ptr<Step>> steps_;
  bool needs_grad_mode_ = false;  // in which operators are called
  std::vector<Output> outputs_;
};

// Memory for a tensor, not initialised.
at::Tensor allocate(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype, c10::Device device);

// From now on this process is a forked child: kernels run with one OpenMP thread, because the parent's threads did not come along.
void mark_forked();

}  // namespace aotcompile
