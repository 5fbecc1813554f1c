// Operators called through torch's dispatcher: {"step": "call", "operator": "aten.mm.default", ...}.
//
// The schema is looked up once. Each argument becomes, when the plan is read, either a ready IValue or a small recipe (a buffer, a size, a list of
// those) that is filled in at each call.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/copy_ops.h>
#include <c10/core/Scalar.h>

#include <limits>

#include "include/dtype.h"
#include "include/graph.h"

namespace aotcompile {

namespace {

// A Python number where the schema wants a tensor: a 0-dim tensor that takes part in type promotion as a number.
at::Tensor wrapped_number(const c10::Scalar& number) {
  const c10::ScalarType dtype = number.isBoolean() ? c10::ScalarType::Bool : number.isIntegral(false) ? c10::ScalarType::Long
                              : number.isComplex() ? c10::ScalarType::ComplexDouble : c10::ScalarType::Double;
  at::Tensor result = allocate({}, {}, dtype, c10::DeviceType::CPU);
  void* const data = result.data_ptr();
  switch (dtype) {
    case c10::ScalarType::Bool: *static_cast<bool*>(data) = number.toBool(); break;
    case c10::ScalarType::Long: *static_cast<int64_t*>(data) = number.toLong(); break;
    case c10::ScalarType::ComplexDouble: *static_cast<c10::complex<double>*>(data) = number.toComplexDouble(); break;
    default: *static_cast<double*>(data) = number.toDouble();
  }
  result.unsafeGetTensorImpl()->set_wrapped_number(true);
  return result;
}

// A recipe for one argument.
struct Argument {
  enum class Kind { Constant, Buffer, Number, NumberTensor, Size, SizeTensor, List } kind = Kind::Constant;
  c10::IValue constant;
  int buffer = -1;
  Expression size;
  bool as_float = false;  // Size: the schema wants a float
  std::vector<Argument> items;
  c10::TypePtr item_type;

  c10::IValue evaluate(const Run& run) const {
    switch (kind) {
      case Kind::Constant: return constant;
      case Kind::Buffer: return run.owned[static_cast<size_t>(buffer)];
      case Kind::Number: return run.owned[static_cast<size_t>(buffer)].item();
      case Kind::NumberTensor: return wrapped_number(run.owned[static_cast<size_t>(buffer)].item());
      case Kind::Size: {
        const int64_t value = size.evaluate(run.symbols.data());
        return as_float ? c10::IValue(static_cast<double>(value)) : c10::IValue(value);
      }
      case Kind::SizeTensor: return wrapped_number(c10::Scalar(size.evaluate(run.symbols.data())));
      case Kind::List: break;
    }
    c10::impl::GenericList list(item_type);
    list.reserve(items.size());
    for (const Argument& item : items) list.push_back(item.evaluate(run));
    return list;
  }
};

c10::TypePtr without_optional(const c10::TypePtr& type) {
  const auto optional = type->cast<c10::OptionalType>();
  return optional ? optional->getElementType() : type;
}

bool is_integer(const c10::TypePtr& type) { return type->kind() == c10::TypeKind::IntType || type->kind() == c10::TypeKind::SymIntType; }

double float_of(const std::string& text) {
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  unsupported("float " + text);
}

double number_of(PyObject* object) {
  const double value = PyFloat_AsDouble(object);
  if (value == -1.0 && PyErr_Occurred()) throw PythonErrorSet{};
  return value;
}

int64_t layout_of(std::string name) {
  if (name.compare(0, 6, "torch.") == 0) name = name.substr(6);
  if (name == "strided") return static_cast<int64_t>(c10::Layout::Strided);
  unsupported("layout " + name);
}

int64_t memory_format_of(std::string name) {
  if (name.compare(0, 6, "torch.") == 0) name = name.substr(6);
  if (name == "contiguous_format") return static_cast<int64_t>(c10::MemoryFormat::Contiguous);
  if (name == "preserve_format") return static_cast<int64_t>(c10::MemoryFormat::Preserve);
  if (name == "channels_last") return static_cast<int64_t>(c10::MemoryFormat::ChannelsLast);
  if (name == "channels_last_3d") return static_cast<int64_t>(c10::MemoryFormat::ChannelsLast3d);
  unsupported("memory format " + name);
}

// Turns argument forms into recipes, by the types of the schema.
class ArgumentReader {
 public:
  ArgumentReader(GraphReader& reader, const std::string& operator_name) : reader_(reader), operator_(operator_name) {}

  Argument read(PyObject* form, const c10::TypePtr& declared, std::optional<int32_t> list_length) {
    Argument result = read_form(form, declared, list_length);
    if (without_optional(declared)->kind() == c10::TypeKind::TensorType && result.kind == Argument::Kind::Constant && !result.constant.isNone()) {
      if (!result.constant.isScalar()) mismatch("no tensor and no number");
      result.constant = wrapped_number(result.constant.toScalar());
    }
    return result;
  }

 private:
  Argument read_form(PyObject* form, const c10::TypePtr& declared, std::optional<int32_t> list_length) {
    if (form == Py_None) return constant(c10::IValue());
    const c10::TypePtr type = without_optional(declared);
    if (const auto list = type->cast<c10::ListType>()) {
      if (PyList_Check(form) || PyTuple_Check(form)) return read_list(form, list->getElementType());
      return repeat(read(form, list->getElementType(), std::nullopt), list->getElementType(), list_length.value_or(1));
    }
    if (PyDict_Check(form)) return read_dict(form, type);
    if (PyBool_Check(form)) return read_bool(form == Py_True, type);
    if (PyLong_Check(form)) return constant(type->kind() == c10::TypeKind::FloatType ? c10::IValue(number_of(form)) : c10::IValue(integer_of(form)));
    if (PyFloat_Check(form)) {
      if (is_integer(type)) mismatch("a float");
      return constant(c10::IValue(PyFloat_AS_DOUBLE(form)));
    }
    if (PyUnicode_Check(form)) {
      if (type->kind() == c10::TypeKind::DeviceObjType) return constant(c10::IValue(c10::Device(text_of(form))));
      return constant(c10::IValue(text_of(form)));
    }
    mismatch(Py_TYPE(form)->tp_name);
  }

  [[noreturn]] void mismatch(const std::string& what) const { unsupported(operator_ + ": " + what + " as an argument"); }

  static Argument constant(c10::IValue value) {
    Argument result;
    result.constant = std::move(value);
    return result;
  }

  static Argument read_bool(bool value, const c10::TypePtr& type) {
    return constant(is_integer(type) ? c10::IValue(static_cast<int64_t>(value)) : c10::IValue(value));
  }

  Argument read_dict(PyObject* form, const c10::TypePtr& type) {
    PyObject *name = nullptr, *value = nullptr;
    Py_ssize_t position = 0;
    if (PyDict_GET_SIZE(form) != 1 || !PyDict_Next(form, &position, &name, &value)) mismatch("a dict of several keys");
    const std::string kind = text_of(name);
    Argument result;
    if (kind == "buffer") {
      if (type->kind() != c10::TypeKind::TensorType) mismatch("a tensor for " + type->repr_str());
      result.kind = Argument::Kind::Buffer;
      result.buffer = reader_.find(value);
      reader_.called[static_cast<size_t>(result.buffer)] = true;
      return result;
    }
    if (kind == "number") {
      const bool tensor = type->kind() == c10::TypeKind::TensorType;
      if (!tensor && type->kind() != c10::TypeKind::NumberType) unsupported("a run-time number for " + type->repr_str());
      result.kind = tensor ? Argument::Kind::NumberTensor : Argument::Kind::Number;
      result.buffer = reader_.find(value);
      reader_.called[static_cast<size_t>(result.buffer)] = true;
      return result;
    }
    if (kind == "size") {
      result.size = reader_.expression(value);
      result.as_float = type->kind() == c10::TypeKind::FloatType;
      result.kind = type->kind() == c10::TypeKind::TensorType ? Argument::Kind::SizeTensor : Argument::Kind::Size;
      return result;
    }
    if (kind == "dtype") {
      c10::ScalarType dtype;
      if (!parse_dtype(text_of(value), dtype)) mismatch("dtype " + text_of(value));
      return constant(c10::IValue(dtype));
    }
    if (kind == "device") return constant(c10::IValue(c10::Device(text_of(value))));
    if (kind == "layout") return constant(c10::IValue(layout_of(text_of(value))));
    if (kind == "memory_format") return constant(c10::IValue(memory_format_of(text_of(value))));
    if (kind == "float") return constant(c10::IValue(float_of(text_of(value))));
    if (kind == "complex") return constant(c10::IValue(c10::complex<double>(part(item_of(value, 0)), part(item_of(value, 1)))));
    mismatch(kind);
  }

  static double part(PyObject* value) {
    return PyDict_Check(value) ? float_of(text_of(field(value, "float"))) : PyUnicode_Check(value) ? float_of(text_of(value)) : number_of(value);
  }

  static c10::TypePtr list_type(const c10::TypePtr& type) { return is_integer(type) ? c10::TypePtr(c10::IntType::get()) : type; }

  static Argument repeat(const Argument& item, const c10::TypePtr& type, int32_t length) {
    Argument result;
    result.kind = Argument::Kind::List;
    result.item_type = list_type(type);
    result.items.assign(static_cast<size_t>(length), item);
    return fold(std::move(result));
  }

  Argument read_list(PyObject* forms, const c10::TypePtr& type) {
    Argument result;
    result.kind = Argument::Kind::List;
    result.item_type = list_type(type);
    for (Py_ssize_t i = 0; i < length_of(forms); ++i) result.items.push_back(read(item_of(forms, i), type, std::nullopt));
    return fold(std::move(result));
  }

  // A list of constants is a constant. Operators do not change their list arguments, so one list serves all calls.
  static Argument fold(Argument list) {
    for (const Argument& item : list.items) {
      if (item.kind != Argument::Kind::Constant) return list;
    }
    return constant(list.evaluate(Run{}));
  }

  GraphReader& reader_;
  const std::string& operator_;
};

bool same_strides(const at::Tensor& tensor, c10::IntArrayRef strides) {
  require(static_cast<size_t>(tensor.dim()) == strides.size(), "a library call returned a tensor with another number of dimensions");
  if (tensor.numel() == 0) return true;
  for (size_t i = 0; i < strides.size(); ++i) {
    if (tensor.strides()[i] != strides[i] && tensor.sizes()[i] != 1) return false;
  }
  return true;
}

class LibraryCall : public Step {
 public:
  explicit LibraryCall(c10::OperatorHandle handle) : handle(std::move(handle)) {}

  void run(Run& run) const override {
    torch::jit::Stack stack;
    stack.reserve(std::max(arguments.size(), results.size()));
    for (const Argument& argument : arguments) stack.push_back(argument.evaluate(run));
    run.release_gil();
    handle.callBoxed(stack);
    size_t index = 0;
    for (c10::IValue& value : stack) {
      if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) take(run, index++, tensor);
      } else if (value.isTensor()) {
        take(run, index++, std::move(value).toTensor());
      } else {
        take(run, index++, at::Tensor());
      }
    }
  }

  struct Result {
    int buffer = -1;  // -1: not wanted
    bool has_strides = false;
    Sizes strides;
  };
  c10::OperatorHandle handle;
  std::vector<Argument> arguments;
  std::vector<Result> results;

 private:
  void take(Run& run, size_t index, at::Tensor tensor) const {
    if (index >= results.size() || results[index].buffer < 0) return;
    const Result& result = results[index];
    if (result.has_strides && tensor.defined()) {
      Sizes::Storage storage;
      const c10::IntArrayRef strides = result.strides.evaluate(run, storage);
      if (!same_strides(tensor, strides)) {
        at::Tensor copy = allocate(tensor.sizes(), strides, tensor.scalar_type(), tensor.device());
        at::_ops::copy_::call(copy, tensor, false);
        tensor = std::move(copy);
      }
    }
    // An operator that changes an input returns it: the buffer goes on being the caller's tensor.
    if (!run.owned[static_cast<size_t>(result.buffer)].is_same(tensor)) run.set(result.buffer, std::move(tensor));
  }
};

// "aten.add.Tensor" -> aten::add, overload Tensor; "aten.mm.default" and "aten.mm" -> aten::mm.
c10::OperatorHandle find_operator(const std::string& name) {
  const size_t first = name.find('.');
  if (first == std::string::npos) fail(PyExc_ValueError, "not an operator: " + name);
  const size_t second = name.find('.', first + 1);
  const std::string full = name.substr(0, first) + "::" + name.substr(first + 1, second == std::string::npos ? second : second - first - 1);
  std::string overload = second == std::string::npos ? "" : name.substr(second + 1);
  if (overload == "default") overload.clear();
  auto handle = c10::Dispatcher::singleton().findSchema({full, overload});
  if (!handle) unsupported("operator " + name + " is not in this torch");
  return *handle;
}

// An operator with integer or float results has no place in `results`, which name tensors.
void check_returns(const c10::FunctionSchema& schema, const std::string& name) {
  for (const c10::Argument& result : schema.returns()) {
    const c10::TypePtr type = without_optional(result.type());
    const auto list = type->cast<c10::ListType>();
    const bool tensors = type->kind() == c10::TypeKind::TensorType || (list && list->getElementType()->kind() == c10::TypeKind::TensorType);
    if (!tensors) unsupported("operator " + name + " returns " + type->repr_str());
  }
}

}  // namespace

std::unique_ptr<Step> make_library_call(GraphReader& reader, PyObject* plan) {
  const std::string name = text_of(field(plan, "operator"));
  auto step = std::make_unique<LibraryCall>(find_operator(name));
  const c10::FunctionSchema& schema = step->handle.schema();
  check_returns(schema, name);
  ArgumentReader arguments(reader, name);
  PyObject* given = field(plan, "arguments");
  PyObject* keywords = field(plan, "keywords");
  Py_ssize_t used_keywords = 0;
  if (static_cast<size_t>(length_of(given)) > schema.arguments().size()) fail(PyExc_ValueError, name + " takes fewer arguments");
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& declared = schema.arguments()[i];
    PyObject* keyword = PyDict_GetItemString(keywords, declared.name().c_str());
    if (static_cast<Py_ssize_t>(i) < length_of(given)) {
      step->arguments.push_back(arguments.read(item_of(given, static_cast<Py_ssize_t>(i)), declared.type(), declared.N()));
    } else if (keyword != nullptr) {
      ++used_keywords;
      step->arguments.push_back(arguments.read(keyword, declared.type(), declared.N()));
    } else if (declared.default_value()) {
      Argument argument;
      argument.constant = *declared.default_value();
      step->arguments.push_back(std::move(argument));
    } else {
      fail(PyExc_ValueError, name + " needs an argument " + declared.name());
    }
  }
  if (used_keywords != PyDict_Size(keywords)) fail(PyExc_ValueError, name + " has no such keyword argument");
  PyObject* results = field(plan, "results");
  PyObject* strides = optional_field(plan, "strides");
  for (Py_ssize_t i = 0; i < length_of(results); ++i) {
    LibraryCall::Result result;
    if (item_of(results, i) != Py_None) result.buffer = reader.define(text_of(item_of(results, i)));
    PyObject* declared = strides != nullptr && i < length_of(strides) ? item_of(strides, i) : Py_None;
    result.has_strides = declared != Py_None;
    if (result.has_strides) result.strides = reader.sizes(declared);
    step->results.push_back(std::move(result));
  }
  return step;
}

}  // namespace aotcompile
