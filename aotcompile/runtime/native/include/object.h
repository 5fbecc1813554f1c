// Owned references to Python objects and readers of JSON-shaped data (dict, list, str, int, float, bool, None).
//
// Errors: a function that fails with a Python exception set throws `PythonErrorSet`; the entry points of the module (module.cpp, stub.cpp) turn it
// into a NULL return. The GIL is held wherever this header is used.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <string>
#include <utility>

namespace aotcompile {

struct PythonErrorSet {};

// A strong reference. `steal` takes over a new reference (nullptr: throws PythonErrorSet), `borrow` adds one.
class Ref {
 public:
  Ref() = default;
  Ref(const Ref& other) : object_(other.object_) { Py_XINCREF(object_); }
  Ref(Ref&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  ~Ref() { Py_XDECREF(object_); }
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  static Ref steal(PyObject* object) {
    if (object == nullptr) throw PythonErrorSet{};
    Ref result;
    result.object_ = object;
    return result;
  }
  static Ref borrow(PyObject* object) {
    Py_XINCREF(object);
    Ref result;
    result.object_ = object;
    return result;
  }
  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  PyObject* release() {
    PyObject* object = object_;
    object_ = nullptr;
    return object;
  }
  void clear() { Py_CLEAR(object_); }
  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(object_);
    return 0;
  }

 private:
  PyObject* object_ = nullptr;
};

[[noreturn]] void fail(PyObject* exception, const std::string& message);
[[noreturn]] inline void unsupported(const std::string& message) { fail(PyExc_NotImplementedError, message); }

std::string text_of(PyObject* object);                       // a str as UTF-8; TypeError for anything else
int64_t integer_of(PyObject* object);                        // an int in 64 bits; TypeError or OverflowError otherwise
Ref interned(const std::string& text);                       // an interned str
PyObject* field(PyObject* dict, const char* name);           // borrowed dict[name]; KeyError if absent
PyObject* optional_field(PyObject* dict, const char* name);  // borrowed, or nullptr if absent or None
Py_ssize_t length_of(PyObject* sequence);                    // of a list or tuple; TypeError otherwise
PyObject* item_of(PyObject* sequence, Py_ssize_t index);     // borrowed, of a list or tuple; IndexError if out of range

// After a failed Python call: clears an ordinary exception (a guard that cannot be evaluated does not hold); KeyboardInterrupt and the like are
// thrown on.
void clear_ordinary_exception();

}  // namespace aotcompile
