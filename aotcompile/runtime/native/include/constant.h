// Constants in guards: {"type": "builtins:int", "value": 3}, compared by exact class and value.
#pragma once

#include "path.h"

#include <memory>
#include <string>
#include <vector>

namespace aotcompile {

// A class by "module:qualname". Accepts a class of that name or one whose own `__aotcompile_original__` has it; remembers the last accepted class.
class ClassName {
 public:
  ClassName() = default;
  ClassName(const std::string& name, const Context& context);  // the module is remapped
  bool accepts(PyTypeObject* type) {
    return reinterpret_cast<PyObject*>(type) == accepted_.get() || accepts_by_name(type);
  }
  bool is(const char* name) const { return original_ == name; }
  int traverse(visitproc visit, void* arg) const { return accepted_.traverse(visit, arg); }
  void clear() { accepted_.clear(); }

 private:
  bool accepts_by_name(PyTypeObject* type);

  std::string original_, module_, qualname_;
  Ref accepted_;
};

// The expected value of an `equals` guard. Floats compare by bits (every NaN equals every NaN, -0.0 is not 0.0); tuples and frozensets item by item;
// values of other classes (dtypes, devices, enum members, ...) by `str`.
class Constant {
 public:
  Constant(PyObject* json, const Context& context);
  bool equals(PyObject* object);
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  enum class Kind { Singleton, Exact, Float, Complex, Tuple, FrozenSet, ByText };
  bool equals_text(PyObject* object);
  bool equals_set(PyObject* object);

  ClassName type_;
  Kind kind_;
  Ref value_;  // Exact, Singleton: the object; ByText: its str
  double real_ = 0, imaginary_ = 0;
  std::vector<Constant> items_;
  Ref accepted_;  // ByText: the last object found equal
};

// A dictionary or set key: {"type", "value"} of a basic type, {"tuple": [...]}, or a bare JSON constant; others by `guards.item_key`.
Ref decode_key(PyObject* json, const Context& context);

}  // namespace aotcompile
