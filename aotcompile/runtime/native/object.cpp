// See include/object.h.
#include "include/object.h"

namespace aotcompile {

void fail(PyObject* exception, const std::string& message) {
  PyErr_SetString(exception, message.c_str());
  throw PythonErrorSet{};
}

std::string text_of(PyObject* object) {
  if (!PyUnicode_Check(object)) fail(PyExc_TypeError, std::string("expected a str, got ") + Py_TYPE(object)->tp_name);
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(object, &size);
  if (data == nullptr) throw PythonErrorSet{};
  return std::string(data, static_cast<size_t>(size));
}

int64_t integer_of(PyObject* object) {
  if (!PyLong_Check(object)) fail(PyExc_TypeError, std::string("expected an int, got ") + Py_TYPE(object)->tp_name);
  const long long value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred()) throw PythonErrorSet{};
  return value;
}

Ref interned(const std::string& text) { return Ref::steal(PyUnicode_InternFromString(text.c_str())); }

PyObject* field(PyObject* dict, const char* name) {
  if (!PyDict_Check(dict)) fail(PyExc_TypeError, std::string("expected a dict with '") + name + "', got " + Py_TYPE(dict)->tp_name);
  PyObject* value = PyDict_GetItemString(dict, name);
  if (value == nullptr) fail(PyExc_KeyError, name);
  return value;
}

PyObject* optional_field(PyObject* dict, const char* name) {
  if (!PyDict_Check(dict)) fail(PyExc_TypeError, std::string("expected a dict, got ") + Py_TYPE(dict)->tp_name);
  PyObject* value = PyDict_GetItemString(dict, name);
  return value == Py_None ? nullptr : value;
}

Py_ssize_t length_of(PyObject* sequence) {
  if (PyList_Check(sequence)) return PyList_GET_SIZE(sequence);
  if (PyTuple_Check(sequence)) return PyTuple_GET_SIZE(sequence);
  fail(PyExc_TypeError, std::string("expected a list or tuple, got ") + Py_TYPE(sequence)->tp_name);
}

PyObject* item_of(PyObject* sequence, Py_ssize_t index) {
  if (index < 0 || index >= length_of(sequence)) fail(PyExc_IndexError, "index out of range");
  return PyList_Check(sequence) ? PyList_GET_ITEM(sequence, index) : PyTuple_GET_ITEM(sequence, index);
}

void clear_ordinary_exception() {
  if (PyErr_Occurred() == nullptr) return;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) throw PythonErrorSet{};
  PyErr_Clear();
}

}  // namespace aotcompile
