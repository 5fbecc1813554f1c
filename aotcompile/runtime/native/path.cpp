// See include/path.h. The steps avoid user code where Python's rules allow it: dictionaries are read directly, nn.Module attributes without its
// __getattr__.
#include "include/path.h"

namespace aotcompile {

namespace {

struct Names {
  Ref parameters = interned("_parameters"), buffers = interned("_buffers"), modules = interned("_modules");
  Ref getattr = interned("__getattr__"), getattribute = interned("__getattribute__");
  Ref module_getattr, object_getattribute;
  Names() {
    const Ref torch_nn = Ref::steal(PyImport_ImportModule("torch.nn"));
    const Ref module_class = Ref::steal(PyObject_GetAttrString(torch_nn.get(), "Module"));
    module_getattr = Ref::steal(PyObject_GetAttrString(module_class.get(), "__getattr__"));
    object_getattribute = Ref::borrow(_PyType_Lookup(&PyBaseObject_Type, getattribute.get()));
  }
};

// Made at the first use, never destroyed (the interpreter may be gone by then).
const Names& names() {
  static const Names* instance = new Names();
  return *instance;
}

PyObject* new_reference(PyObject* borrowed) {
  Py_XINCREF(borrowed);
  return borrowed;
}

// getattr(x, name) for an nn.Module whose __getattr__ and __getattribute__ are the standard ones and whose class has no such attribute:
// what nn.Module.__getattr__ does, without running it. Returns nullptr without an exception where that does not apply.
PyObject* module_attribute(PyObject* object, PyObject* name) {
  PyTypeObject* type = Py_TYPE(object);
  const Names& known = names();
  if (_PyType_Lookup(type, known.getattr.get()) != known.module_getattr.get()) return nullptr;
  if (_PyType_Lookup(type, known.getattribute.get()) != known.object_getattribute.get()) return nullptr;
  if (_PyType_Lookup(type, name) != nullptr) return nullptr;
  PyObject* dictionary = PyObject_GenericGetDict(object, nullptr);
  if (dictionary == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  PyObject* found = PyDict_GetItemWithError(dictionary, name);
  for (const Ref* place : {&known.parameters, &known.buffers, &known.modules}) {
    if (found != nullptr) break;
    PyObject* table = PyDict_GetItemWithError(dictionary, place->get());
    if (table != nullptr && PyDict_Check(table)) found = PyDict_GetItemWithError(table, name);
  }
  Py_XINCREF(found);
  Py_DECREF(dictionary);
  return found;
}

PyObject* attribute(PyObject* object, PyObject* name) {
  PyObject* found = module_attribute(object, name);
  return found != nullptr || PyErr_Occurred() ? found : PyObject_GetAttr(object, name);
}

PyObject* dictionary_value(PyObject* object, PyObject* name) {
  PyObject* dictionary = PyObject_GenericGetDict(object, nullptr);
  if (dictionary == nullptr) return nullptr;
  PyObject* found = new_reference(PyDict_Check(dictionary) ? PyDict_GetItemWithError(dictionary, name) : nullptr);
  Py_DECREF(dictionary);
  return found;
}

PyObject* item(PyObject* object, PyObject* key, Py_ssize_t index) {
  if (PyDict_Check(object) && Py_TYPE(object)->tp_as_mapping->mp_subscript == PyDict_Type.tp_as_mapping->mp_subscript) {
    return new_reference(PyDict_GetItemWithError(object, key));
  }
  if (index >= 0 && PyTuple_CheckExact(object)) return index < PyTuple_GET_SIZE(object) ? new_reference(PyTuple_GET_ITEM(object, index)) : nullptr;
  if (index >= 0 && PyList_CheckExact(object)) return index < PyList_GET_SIZE(object) ? new_reference(PyList_GET_ITEM(object, index)) : nullptr;
  return PyObject_GetItem(object, key);
}

// Past a `__getitem__` of the object's class.
PyObject* own_item(PyObject* object, PyObject* key) {
  if (PyDict_Check(object)) return new_reference(PyDict_GetItemWithError(object, key));
  if (PyTuple_Check(object)) return PyTuple_Type.tp_as_mapping->mp_subscript(object, key);
  return PyList_Check(object) ? PyList_Type.tp_as_mapping->mp_subscript(object, key) : nullptr;
}

PyObject* keys_or_values(PyObject* object, const char* method) {
  PyObject* view = PyObject_CallMethod(object, method, nullptr);
  PyObject* result = view != nullptr ? PySequence_Tuple(view) : nullptr;
  Py_XDECREF(view);
  return result;
}

PyObject* cell_content(PyObject* function, Py_ssize_t index) {
  if (!PyFunction_Check(function)) return nullptr;
  PyObject* cells = PyFunction_GET_CLOSURE(function);
  if (cells == nullptr || index >= PyTuple_GET_SIZE(cells)) return nullptr;
  return PyCell_Get(PyTuple_GET_ITEM(cells, index));
}

PyObject* context_value(PyObject* variable) {
  if (!PyContextVar_CheckExact(variable)) return nullptr;
  PyObject* value = nullptr;
  return PyContextVar_Get(variable, nullptr, &value) < 0 ? nullptr : value;
}

bool is_plain_key(PyObject* key) { return PyUnicode_CheckExact(key) || PyLong_CheckExact(key); }

// `value` is what `attribute(object, name)` gave.
bool attribute_reads(PyObject* object, PyObject* name, PyObject* value, Reads& reads) {
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyType_Type) {  // of a class: what a descriptor made is another object each time
    auto* owner = reinterpret_cast<PyTypeObject*>(object);
    if (_PyType_Lookup(owner, name) != value) return false;
    reads.class_of(object);
    reads.attributes(owner);
    return true;
  }
  const Names& known = names();
  const bool module = _PyType_Lookup(type, known.getattr.get()) == known.module_getattr.get() &&
                      _PyType_Lookup(type, known.getattribute.get()) == known.object_getattribute.get();
  if (!module && type->tp_getattro != PyObject_GenericGetAttr && type->tp_getattro != PyModule_Type.tp_getattro) return false;
  PyObject* of_class = _PyType_Lookup(type, name);
  if (of_class != nullptr && (of_class != value || Py_TYPE(value)->tp_descr_get != nullptr)) return false;
  PyObject** place = _PyObject_GetDictPtr(object);
  PyObject* dictionary = place != nullptr ? *place : nullptr;
  if (dictionary == nullptr || !PyDict_Check(dictionary)) return false;
  reads.dictionary(object, name);
  reads.attributes(type);
  PyObject* found = PyDict_GetItemWithError(dictionary, name);
  if (found != nullptr || of_class != nullptr) return found == value || (found == nullptr && of_class == value);
  for (const Ref* table_name : {&known.parameters, &known.buffers, &known.modules}) {
    if (!module || found != nullptr) break;
    reads.dictionary(object, table_name->get());
    PyObject* table = PyDict_GetItemWithError(dictionary, table_name->get());
    if (table == nullptr || !PyDict_Check(table)) continue;
    reads.table(table, name);
    found = PyDict_GetItemWithError(table, name);
  }
  return found == value;
}

bool item_reads(PyObject* object, PyObject* key, Py_ssize_t index, bool own, Reads& reads) {
  if (PyDict_Check(object)) {
    if (!is_plain_key(key) || !(own || Py_TYPE(object)->tp_as_mapping->mp_subscript == PyDict_Type.tp_as_mapping->mp_subscript)) return false;
    reads.table(object, key);
    return true;
  }
  const bool exact = PyTuple_CheckExact(object) || PyList_CheckExact(object);
  if (index < 0 || !exact) return false;
  reads.item(object, index);
  return true;
}

std::string repr_of(PyObject* object) { return text_of(Ref::steal(PyObject_Repr(object)).get()); }

}  // namespace

Context::Context(PyObject* context) : dict(Ref::borrow(context)) {
  PyObject* parameter_names = field(context, "parameters");
  for (Py_ssize_t i = 0; i < length_of(parameter_names); ++i) parameters.push_back(text_of(item_of(parameter_names, i)));
  globals = Ref::borrow(field(context, "globals"));
  if (!PyDict_Check(globals.get())) fail(PyExc_TypeError, "context['globals'] is not a dict");
  PyObject* cells = optional_field(context, "closure");
  closure = cells != nullptr ? Ref::borrow(cells) : Ref::steal(PyDict_New());
  if (!PyDict_Check(closure.get())) fail(PyExc_TypeError, "context['closure'] is not a dict");
  PyObject* own_builtins = PyDict_GetItemString(globals.get(), "__builtins__");
  if (own_builtins != nullptr && PyModule_Check(own_builtins)) own_builtins = PyModule_GetDict(own_builtins);
  builtins = Ref::borrow(own_builtins != nullptr && PyDict_Check(own_builtins) ? own_builtins : PyEval_GetBuiltins());
  if (PyObject* name = optional_field(context, "package")) package = text_of(name);
  if (PyObject* name = optional_field(context, "import_name")) import_name = text_of(name);
}

std::string Context::remap(const std::string& module) const {
  if (package.empty() || import_name.empty()) return module;
  if (module == package) return import_name;
  return module.compare(0, package.size() + 1, package + ".") == 0 ? import_name + module.substr(package.size()) : module;
}

Ref item_key(PyObject* constant, const Context& context) {
  const Ref module = Ref::steal(PyImport_ImportModule("aotcompile.runtime.guards"));
  return Ref::steal(PyObject_CallMethod(module.get(), "item_key", "Oss", constant, context.package.c_str(), context.import_name.c_str()));
}

Ref decode_part(PyObject* part, const Context& context) {
  if (!PyDict_Check(part)) {
    if (!PyUnicode_Check(part)) return Ref::borrow(part);
    PyObject* name = new_reference(part);
    PyUnicode_InternInPlace(&name);
    return Ref::steal(name);
  }
  if (PyObject* constant = optional_field(part, "constant")) return item_key(constant, context);
  PyObject* items = field(part, "tuple");
  Ref result = Ref::steal(PyTuple_New(length_of(items)));
  for (Py_ssize_t i = 0; i < length_of(items); ++i) PyTuple_SET_ITEM(result.get(), i, decode_part(item_of(items, i), context).release());
  return result;
}

PathTree::Node PathTree::root_node(PyObject* root, const Context& context) const {
  const std::string kind = text_of(item_of(root, 0));
  const std::string name = text_of(item_of(root, 1));
  Node node{Kind::Argument, -1, -1, interned(name), "root " + kind + " " + name};
  if (kind == "argument") {
    for (size_t i = 0; i < context.parameters.size(); ++i) {
      if (context.parameters[i] == name) node.index = static_cast<Py_ssize_t>(i);
    }
    if (node.index < 0) fail(PyExc_ValueError, "the region has no parameter called " + name);
  } else if (kind == "closure") {
    node.kind = Kind::Closure;
  } else if (kind == "global") {
    node.kind = Kind::Global;
  } else if (kind == "module") {
    node.kind = Kind::Module;
    node.key = interned(context.remap(name));
  } else {
    unsupported("path root " + kind);
  }
  return node;
}

PathTree::Node PathTree::step_node(PyObject* step, int parent, const Context& context) const {
  const std::string kind = text_of(item_of(step, 0));
  Node node{Kind::Type, parent, -1, Ref(), repr_of(step)};
  if (kind == "attribute" || kind == "dictionary") {
    node.kind = kind == "attribute" ? Kind::Attribute : Kind::Dictionary;
    node.key = interned(text_of(item_of(step, 1)));
  } else if (kind == "item") {
    node.kind = Kind::Item;
    node.key = decode_part(item_of(step, 1), context);
    if (PyLong_CheckExact(node.key.get())) {
      node.index = PyLong_AsSsize_t(node.key.get());
      if (node.index == -1 && PyErr_Occurred()) PyErr_Clear();
    }
  } else if (kind == "own_item") {
    node.kind = Kind::OwnItem;
    node.key = decode_part(item_of(step, 2), context);
  } else if (kind == "type") {
    node.kind = Kind::Type;
  } else if (kind == "keys") {
    node.kind = Kind::Keys;
  } else if (kind == "values") {
    node.kind = Kind::Values;
  } else if (kind == "referent") {
    node.kind = Kind::Referent;
  } else if (kind == "cell") {
    node.kind = Kind::Cell;
    node.index = static_cast<Py_ssize_t>(integer_of(item_of(step, 1)));
    if (node.index < 0) fail(PyExc_ValueError, "negative cell number");
  } else if (kind == "context_variable") {
    node.kind = Kind::ContextVariable;
  } else if (kind == "call") {
    node.kind = Kind::Call;
    node.key = decode_part(item_of(step, 1), context);
  } else {
    unsupported("path step " + kind);
  }
  return node;
}

int PathTree::insert(Node node) {
  const auto [place, is_new] = index_.try_emplace({node.parent, node.text}, static_cast<int>(nodes_.size()));
  if (is_new) nodes_.push_back(std::move(node));
  return place->second;
}

int PathTree::add(PyObject* path, const Context& context) {
  int node = insert(root_node(item_of(path, 0), context));
  PyObject* steps = item_of(path, 1);
  for (Py_ssize_t i = 0; i < length_of(steps); ++i) node = insert(step_node(item_of(steps, i), node, context));
  return node;
}

PyObject* PathTree::follow(size_t number, PyObject* parent, const Frame& frame, const Context& context) const {
  const Node& node = nodes_[number];
  switch (node.kind) {
    case Kind::Argument: return node.index < frame.argument_count ? new_reference(frame.arguments[node.index]) : nullptr;
    case Kind::Closure: {
      PyObject* cell = PyDict_GetItemWithError(context.closure.get(), node.key.get());
      return cell != nullptr && PyCell_Check(cell) ? PyCell_Get(cell) : nullptr;
    }
    case Kind::Global: {
      PyObject* value = PyDict_GetItemWithError(context.globals.get(), node.key.get());
      if (value == nullptr && !PyErr_Occurred()) value = PyDict_GetItemWithError(context.builtins.get(), node.key.get());
      return new_reference(value);
    }
    case Kind::Module: {
      PyObject* modules = PyImport_GetModuleDict();
      return new_reference(PyDict_Check(modules) ? PyDict_GetItemWithError(modules, node.key.get()) : nullptr);
    }
    case Kind::Attribute: return attribute(parent, node.key.get());
    case Kind::Dictionary: return dictionary_value(parent, node.key.get());
    case Kind::Item: return item(parent, node.key.get(), node.index);
    case Kind::OwnItem: return own_item(parent, node.key.get());
    case Kind::Type: return new_reference(reinterpret_cast<PyObject*>(Py_TYPE(parent)));
    case Kind::Keys: return keys_or_values(parent, "keys");
    case Kind::Values: return keys_or_values(parent, "values");
    case Kind::Referent: return PyObject_CallNoArgs(parent);
    case Kind::Cell: return cell_content(parent, node.index);
    case Kind::ContextVariable: return context_value(parent);
    case Kind::Call: return PyObject_Call(parent, node.key.get(), nullptr);
  }
  return nullptr;
}

bool PathTree::follow_next(Frame& frame, const Context& context) const {
  const size_t node = frame.slots.size();
  PyObject* value = follow(node, nodes_[node].parent >= 0 ? frame.slots[static_cast<size_t>(nodes_[node].parent)] : nullptr, frame, context);
  if (value == nullptr) {
    clear_ordinary_exception();
    return false;
  }
  frame.slots.push_back(value);
  return true;
}

bool PathTree::reads(size_t number, PyObject* parent, PyObject* value, const Context& context, Reads& reads) const {
  const Node& node = nodes_[number];
  switch (node.kind) {
    case Kind::Global:
      reads.table(context.globals.get(), node.key.get());
      if (PyDict_GetItemWithError(context.globals.get(), node.key.get()) == nullptr) reads.table(context.builtins.get(), node.key.get());
      return true;
    case Kind::Module:
      if (!PyDict_Check(PyImport_GetModuleDict())) return false;
      reads.table(PyImport_GetModuleDict(), node.key.get());
      return true;
    case Kind::Attribute: return attribute_reads(parent, node.key.get(), value, reads);
    case Kind::Dictionary: reads.dictionary(parent, node.key.get()); return true;
    case Kind::Item: return item_reads(parent, node.key.get(), node.index, false, reads);
    case Kind::OwnItem: return item_reads(parent, node.key.get(), node.index, true, reads);
    case Kind::Type: reads.class_of(parent); return true;
    case Kind::Closure: case Kind::Cell: reads.again(number); return true;
    case Kind::Argument: case Kind::Keys: case Kind::Values: case Kind::Referent: case Kind::ContextVariable: return false;
  }
  return false;
}

int PathTree::traverse(visitproc visit, void* arg) const {
  for (const Node& node : nodes_) {
    if (const int status = node.key.traverse(visit, arg)) return status;
  }
  return 0;
}

}  // namespace aotcompile
