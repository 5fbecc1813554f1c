// See include/constant.h.
#include "include/constant.h"

#include <cstring>

namespace aotcompile {

namespace {

double parse_float(PyObject* value) {
  if (PyFloat_Check(value)) return PyFloat_AS_DOUBLE(value);
  if (PyLong_Check(value)) return static_cast<double>(integer_of(value));
  const std::string text = text_of(value);
  const Ref result = Ref::steal(PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyFloat_Type), "fromhex", "s", text.c_str()));
  return PyFloat_AsDouble(result.get());
}

bool same_float(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b); }

Ref parse_bytes(PyObject* value) {
  return Ref::steal(PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyBytes_Type), "fromhex", "s", text_of(value).c_str()));
}

// The str attribute `name` of a class; empty if it has none.
std::string class_text(PyTypeObject* type, const char* name) {
  PyObject* value = PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), name);
  if (value == nullptr) {
    clear_ordinary_exception();
    return "";
  }
  const Ref owned = Ref::steal(value);
  return PyUnicode_Check(value) ? text_of(value) : "";
}

}  // namespace

ClassName::ClassName(const std::string& name, const Context& context) : original_(name) {
  const size_t colon = name.find(':');
  if (colon == std::string::npos) fail(PyExc_ValueError, "not a class name: " + name);
  module_ = context.remap(name.substr(0, colon));
  qualname_ = name.substr(colon + 1);
}

bool ClassName::accepts_by_name(PyTypeObject* type) {
  bool same = class_text(type, "__qualname__") == qualname_ && class_text(type, "__module__") == module_;
  if (!same && (type->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
    // A rewritten class stands for the original; its subclasses, which inherit the attribute, do not.
    const Ref dictionary = Ref::steal(PyObject_GenericGetDict(reinterpret_cast<PyObject*>(type), nullptr));
    PyObject* original = PyDict_GetItemString(dictionary.get(), "__aotcompile_original__");
    if (original != nullptr && PyType_Check(original) && class_text(reinterpret_cast<PyTypeObject*>(original), "__qualname__") == qualname_) {
      const std::string module = class_text(reinterpret_cast<PyTypeObject*>(original), "__module__");
      same = module == module_ || module + ":" + qualname_ == original_;
    }
  }
  if (same) accepted_ = Ref::borrow(reinterpret_cast<PyObject*>(type));
  return same;
}

Constant::Constant(PyObject* json, const Context& context) {
  const std::string name = text_of(field(json, "type"));
  PyObject* value = field(json, "value");
  type_ = ClassName(name, context);
  value_ = Ref::borrow(value);
  if (name == "builtins:NoneType" || name == "builtins:bool") {
    kind_ = Kind::Singleton;
  } else if (name == "builtins:int" || name == "builtins:str") {
    kind_ = Kind::Exact;
  } else if (name == "builtins:float") {
    kind_ = Kind::Float;
    real_ = parse_float(value);
  } else if (name == "builtins:complex") {
    kind_ = Kind::Complex;
    real_ = parse_float(item_of(value, 0));
    imaginary_ = parse_float(item_of(value, 1));
  } else if (name == "builtins:bytes") {
    kind_ = Kind::Exact;
    value_ = parse_bytes(value);
  } else if (PyList_Check(value)) {
    kind_ = name == "builtins:frozenset" || name == "builtins:set" ? Kind::FrozenSet : Kind::Tuple;
    for (Py_ssize_t i = 0; i < length_of(value); ++i) items_.emplace_back(item_of(value, i), context);
  } else {
    kind_ = Kind::ByText;
    text_of(value);
  }
  if (PyErr_Occurred()) throw PythonErrorSet{};
}

bool Constant::equals(PyObject* object) {
  if (kind_ == Kind::Singleton) return object == value_.get();
  if (!type_.accepts(Py_TYPE(object))) return false;
  switch (kind_) {
    case Kind::Singleton: return false;
    case Kind::Exact: {
      if (object == value_.get()) return true;
      const int equal = PyObject_RichCompareBool(object, value_.get(), Py_EQ);
      if (equal < 0) throw PythonErrorSet{};
      return equal == 1;
    }
    case Kind::Float: return same_float(PyFloat_AS_DOUBLE(object), real_);
    case Kind::Complex: return same_float(PyComplex_RealAsDouble(object), real_) && same_float(PyComplex_ImagAsDouble(object), imaginary_);
    case Kind::Tuple: {
      if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != static_cast<Py_ssize_t>(items_.size())) return false;
      for (size_t i = 0; i < items_.size(); ++i) {
        if (!items_[i].equals(PyTuple_GET_ITEM(object, static_cast<Py_ssize_t>(i)))) return false;
      }
      return true;
    }
    case Kind::FrozenSet: return equals_set(object);
    case Kind::ByText: return equals_text(object);
  }
  return false;
}

bool Constant::equals_set(PyObject* object) {
  if (!PyAnySet_Check(object) || PySet_GET_SIZE(object) != static_cast<Py_ssize_t>(items_.size())) return false;
  const Ref members = Ref::steal(PySequence_Tuple(object));
  for (Constant& expected : items_) {
    bool found = false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(members.get()) && !found; ++i) found = expected.equals(PyTuple_GET_ITEM(members.get(), i));
    if (!found) return false;
  }
  return true;
}

bool Constant::equals_text(PyObject* object) {
  if (object == accepted_.get()) return true;
  PyObject* text = PyObject_Str(object);
  if (text == nullptr) {
    clear_ordinary_exception();
    return false;
  }
  const Ref owned = Ref::steal(text);
  const int equal = PyUnicode_Compare(text, value_.get());
  if (equal == -1 && PyErr_Occurred()) throw PythonErrorSet{};
  if (equal == 0) accepted_ = Ref::borrow(object);
  return equal == 0;
}

int Constant::traverse(visitproc visit, void* arg) const {
  for (const Constant& item : items_) {
    if (const int status = item.traverse(visit, arg)) return status;
  }
  if (const int status = type_.traverse(visit, arg)) return status;
  if (const int status = value_.traverse(visit, arg)) return status;
  return accepted_.traverse(visit, arg);
}

void Constant::clear() {
  for (Constant& item : items_) item.clear();
  type_.clear();
  accepted_.clear();
}

Ref decode_key(PyObject* json, const Context& context) {
  if (!PyDict_Check(json) || PyDict_GetItemString(json, "tuple") != nullptr) return decode_part(json, context);
  const std::string name = text_of(field(json, "type"));
  PyObject* value = field(json, "value");
  if (name == "builtins:tuple") {
    Ref result = Ref::steal(PyTuple_New(length_of(value)));
    for (Py_ssize_t i = 0; i < length_of(value); ++i) PyTuple_SET_ITEM(result.get(), i, decode_key(item_of(value, i), context).release());
    return result;
  }
  if (name == "builtins:float") return Ref::steal(PyFloat_FromDouble(parse_float(value)));
  if (name == "builtins:bytes") return parse_bytes(value);
  if (name == "builtins:int" || name == "builtins:str" || name == "builtins:bool" || name == "builtins:NoneType") return decode_part(value, context);
  return item_key(json, context);
}

}  // namespace aotcompile
