// Guards on Python values and thread state, and the set of all guards of a variant. See include/guard.h.
#include "include/guard.h"

#include <algorithm>
#include <functional>

#include "include/bridge.h"
#include "include/dtype.h"
#include "include/guard_cache.h"

namespace aotcompile {

namespace {

class TypeGuard : public Guard {
 public:
  explicit TypeGuard(ClassName name) : type(std::move(name)) {}
  bool holds(Frame&, PyObject* value) override { return type.accepts(Py_TYPE(value)); }
  Depends depends() const override { return Depends::Class; }
  int traverse(visitproc visit, void* arg) const override { return type.traverse(visit, arg); }
  void clear() override { type.clear(); }

 protected:
  ClassName type;
};

class EqualsGuard : public Guard {
 public:
  explicit EqualsGuard(Constant value) : expected(std::move(value)) {}
  bool holds(Frame&, PyObject* value) override { return expected.equals(value); }
  Depends depends() const override { return Depends::Nothing; }
  int traverse(visitproc visit, void* arg) const override { return expected.traverse(visit, arg); }
  void clear() override { expected.clear(); }

 private:
  Constant expected;
};

class NumberGuard : public Guard {
 public:
  // `symbol`: by which `expression` guards speak of the number, -1 if none does.
  explicit NumberGuard(bool integer, int symbol = -1) : integer(integer), symbol(symbol) {}
  bool holds(Frame& frame, PyObject* value) override {
    if (!integer) return PyFloat_CheckExact(value);
    if (!PyLong_CheckExact(value)) return false;
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow != 0) return false;
    if (symbol >= 0) frame.symbols[static_cast<size_t>(symbol)] = number;
    return true;
  }

 private:
  bool integer;
  int symbol;
};

class LengthGuard : public TypeGuard {
 public:
  LengthGuard(ClassName name, Py_ssize_t length) : TypeGuard(std::move(name)), length(length) {}
  bool holds(Frame&, PyObject* value) override {
    if (!type.accepts(Py_TYPE(value))) return false;
    const Py_ssize_t found = PyObject_Size(value);
    if (found < 0) throw PythonErrorSet{};
    return found == length;
  }
  Depends depends() const override { return Depends::Contents; }
  bool reads_plainly(PyTypeObject* type) const override {
    const PySequenceMethods* sequence = type->tp_as_sequence;
    return type->tp_as_mapping->mp_length == PyDict_Type.tp_as_mapping->mp_length && (sequence == nullptr || sequence->sq_length == nullptr);
  }

 private:
  Py_ssize_t length;
};

// Exact type and the keys in order. A mapping that is no dict is read through `keys()`.
class KeysGuard : public TypeGuard {
 public:
  KeysGuard(ClassName name, std::vector<Constant> keys) : TypeGuard(std::move(name)), keys(std::move(keys)) {}
  bool holds(Frame&, PyObject* value) override {
    if (!type.accepts(Py_TYPE(value))) return false;
    if (!PyDict_CheckExact(value)) return compare(Ref::steal(PyMapping_Keys(value)).get());
    if (PyDict_GET_SIZE(value) != static_cast<Py_ssize_t>(keys.size())) return false;
    Py_ssize_t position = 0;
    PyObject *key = nullptr, *unused = nullptr;
    for (size_t i = 0; PyDict_Next(value, &position, &key, &unused); ++i) {
      if (i >= keys.size() || !keys[i].equals(key)) return false;
    }
    return true;
  }
  Depends depends() const override { return Depends::Contents; }
  bool reads_plainly(PyTypeObject* type) const override { return type == &PyDict_Type; }  // others may be put in order again without a change
  int traverse(visitproc visit, void* arg) const override {
    for (const Constant& key : keys) {
      if (const int status = key.traverse(visit, arg)) return status;
    }
    return TypeGuard::traverse(visit, arg);
  }
  void clear() override {
    for (Constant& key : keys) key.clear();
    TypeGuard::clear();
  }

 private:
  bool compare(PyObject* list) {
    if (length_of(list) != static_cast<Py_ssize_t>(keys.size())) return false;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!keys[i].equals(item_of(list, static_cast<Py_ssize_t>(i)))) return false;
    }
    return true;
  }

  std::vector<Constant> keys;
};

class ContainsGuard : public Guard {
 public:
  ContainsGuard(Ref key, bool present, bool in_dictionary) : key(std::move(key)), present(present), in_dictionary(in_dictionary) {}
  bool holds(Frame&, PyObject* value) override {
    const Ref container = in_dictionary ? Ref::steal(PyObject_GenericGetDict(value, nullptr)) : Ref::borrow(value);
    const int found = PySequence_Contains(container.get(), key.get());
    if (found < 0) throw PythonErrorSet{};
    return (found == 1) == present;
  }
  Depends depends() const override { return in_dictionary ? Depends::Dictionary : Depends::Contents; }
  bool reads_plainly(PyTypeObject* type) const override {
    return type->tp_as_sequence != nullptr && type->tp_as_sequence->sq_contains == PyDict_Type.tp_as_sequence->sq_contains;
  }
  int traverse(visitproc visit, void* arg) const override { return key.traverse(visit, arg); }

 private:
  Ref key;
  bool present, in_dictionary;
};

// A Python function (or the function of a bound method) whose code object was accepted before, else whose name and digest the Python side accepts.
class FunctionGuard : public Guard {
 public:
  FunctionGuard(Ref matches, Ref name, Ref digest) : matches(std::move(matches)), name(std::move(name)), digest(std::move(digest)) {}
  bool holds(Frame&, PyObject* value) override {
    PyObject* function = PyMethod_Check(value) ? PyMethod_GET_FUNCTION(value) : value;
    if (!PyFunction_Check(function)) return false;
    PyObject* code = PyFunction_GET_CODE(function);
    if (code == accepted.get()) return true;
    if (!matches) return false;  // cleared by the garbage collector
    const Ref held = Ref::borrow(function), held_code = Ref::borrow(code);
    const Ref answer = Ref::steal(PyObject_CallFunctionObjArgs(matches.get(), function, name.get(), digest.get(), nullptr));
    const int truth = PyObject_IsTrue(answer.get());
    if (truth < 0) throw PythonErrorSet{};
    if (truth == 1) accepted = held_code;
    return truth == 1;
  }
  int traverse(visitproc visit, void* arg) const override {
    if (const int status = matches.traverse(visit, arg)) return status;
    return accepted.traverse(visit, arg);
  }
  void clear() override {
    matches.clear();
    accepted.clear();
  }

 private:
  Ref matches, name, digest, accepted;
};

class SameGuard : public Guard {
 public:
  explicit SameGuard(int other) : other(other) {}
  bool holds(Frame& frame, PyObject* value) override { return frame.slots[static_cast<size_t>(other)] == value; }
  void add_nodes(std::vector<int>& nodes) const override { nodes.push_back(other); }

 private:
  int other;
};

// No two of the objects are one.
class DistinctGuard : public Guard {
 public:
  explicit DistinctGuard(std::vector<int> others) : others_(std::move(others)) {}
  bool holds(Frame& frame, PyObject* value) override {
    objects_.assign(1, value);
    for (const int other : others_) objects_.push_back(frame.slots[static_cast<size_t>(other)]);
    std::sort(objects_.begin(), objects_.end(), std::less<>());
    return std::adjacent_find(objects_.begin(), objects_.end()) == objects_.end();
  }
  void add_nodes(std::vector<int>& nodes) const override { nodes.insert(nodes.end(), others_.begin(), others_.end()); }

 private:
  std::vector<int> others_;
  std::vector<PyObject*> objects_;  // kept, so that a check does not allocate
};

// The value is the key at a position of a mapping (-1: no key of it).
class PositionGuard : public Guard {
 public:
  PositionGuard(int table, Py_ssize_t position) : table_(table), position_(position) {}
  bool holds(Frame& frame, PyObject* value) override {
    const Ref keys = Ref::steal(PySequence_List(frame.slots[static_cast<size_t>(table_)]));
    for (Py_ssize_t i = 0; i < length_of(keys.get()); ++i) {
      const int equal = PyObject_RichCompareBool(item_of(keys.get(), i), value, Py_EQ);
      if (equal < 0) throw PythonErrorSet{};
      if (equal == 1) return i == position_;
    }
    return position_ < 0;
  }
  void add_nodes(std::vector<int>& nodes) const override { nodes.push_back(table_); }

 private:
  int table_;
  Py_ssize_t position_;
};

class ExpressionGuard : public Guard {
 public:
  explicit ExpressionGuard(Expression expression) : expression(std::move(expression)) {}
  bool holds(Frame& frame, PyObject*) override { return expression.evaluate(frame.symbols.data()) != 0; }

 private:
  Expression expression;
};

// A guard that holds wherever it stands (its comparisons are deferred).
class DeferredGuard : public Guard {
 public:
  bool holds(Frame&, PyObject*) override { return true; }
};

class ThreadStateGuard : public Guard {
 public:
  ThreadStateGuard(bool (*read)(), bool expected) : read(read), expected(expected) {}
  bool holds(Frame&, PyObject*) override { return read() == expected; }

 private:
  bool (*read)();
  bool expected;
};

class AutocastGuard : public Guard {
 public:
  AutocastGuard(bool (*enabled)(), c10::DeviceType device, c10::ScalarType dtype) : enabled(enabled), device(device), dtype(dtype) {}
  bool holds(Frame&, PyObject*) override { return enabled() && autocast_dtype(device) == dtype; }

 private:
  bool (*enabled)();
  c10::DeviceType device;
  c10::ScalarType dtype;
};

// A rare kind, checked by a Python callable. `remembers`: an object found good once stays good (builtins: identity is what the record names).
class PythonGuard : public Guard {
 public:
  PythonGuard(Ref check, bool remembers) : check(std::move(check)), remembers(remembers) {}
  bool holds(Frame&, PyObject* value) override {
    if (remembers && value != nullptr && value == accepted.get()) return true;
    if (!check) return false;  // cleared by the garbage collector
    const Ref answer = Ref::steal(PyObject_CallOneArg(check.get(), value != nullptr ? value : Py_None));
    const int truth = PyObject_IsTrue(answer.get());
    if (truth < 0) throw PythonErrorSet{};
    if (truth == 1 && remembers) accepted = Ref::borrow(value);
    return truth == 1;
  }
  int traverse(visitproc visit, void* arg) const override {
    if (const int status = check.traverse(visit, arg)) return status;
    return accepted.traverse(visit, arg);
  }
  void clear() override {
    check.clear();
    accepted.clear();
  }

 private:
  Ref check, accepted;
  bool remembers;
};

// A Python helper: context[name] if given there, else from the runtime's module.
Ref helper(const Context& context, const char* name, const char* module) {
  if (PyObject* given = optional_field(context.dict.get(), name)) return Ref::borrow(given);
  return Ref::steal(PyObject_GetAttrString(Ref::steal(PyImport_ImportModule(module)).get(), name));
}

std::unique_ptr<Guard> make_python_guard(const Context& context, PyObject* record, bool remembers) {
  const Ref single = helper(context, "single", "aotcompile.runtime.guards");
  return std::make_unique<PythonGuard>(Ref::steal(PyObject_CallFunctionObjArgs(single.get(), record, context.dict.get(), nullptr)), remembers);
}

std::unique_ptr<Guard> make_function_guard(const Context& context, PyObject* expected) {
  std::string name = text_of(field(expected, "name"));
  const size_t colon = name.find(':');
  if (colon != std::string::npos) name = context.remap(name.substr(0, colon)) + name.substr(colon);
  Ref name_object = Ref::steal(PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size())));
  return std::make_unique<FunctionGuard>(helper(context, "matches", "aotcompile.runtime.digest"), std::move(name_object),
                                         Ref::borrow(field(expected, "digest")));
}

std::unique_ptr<Guard> make_keys_guard(const Context& context, PyObject* expected) {
  std::vector<Constant> keys;
  PyObject* list = field(expected, "keys");
  for (Py_ssize_t i = 0; i < length_of(list); ++i) {
    if (!PyDict_Check(item_of(list, i)) || PyDict_GetItemString(item_of(list, i), "type") == nullptr) unsupported("keys that are no constants");
    keys.emplace_back(item_of(list, i), context);
  }
  return std::make_unique<KeysGuard>(ClassName(text_of(field(expected, "type")), context), std::move(keys));
}

// {name: value} or {"name": name, "value": value}; one pair only.
std::pair<std::string, PyObject*> state_pair(PyObject* expected) {
  if (PyDict_GET_SIZE(expected) == 2 && PyDict_GetItemString(expected, "name") != nullptr) {
    return {text_of(field(expected, "name")), field(expected, "value")};
  }
  Py_ssize_t position = 0;
  PyObject *name = nullptr, *value = nullptr;
  if (PyDict_GET_SIZE(expected) != 1 || !PyDict_Next(expected, &position, &name, &value)) unsupported("a state guard of several values");
  return {text_of(name), value};
}

std::unique_ptr<Guard> make_state_guard(PyObject* expected) {
  const auto [name, value] = state_pair(expected);
  const bool cpu = name == "autocast_cpu";
  if (cpu || name == "autocast_cuda") {
    bool (*const read)() = cpu ? autocast_cpu_enabled : autocast_cuda_enabled;
    c10::ScalarType dtype;
    if (PyUnicode_Check(value) && parse_dtype(text_of(value), dtype)) {
      return std::make_unique<AutocastGuard>(read, cpu ? c10::DeviceType::CPU : c10::DeviceType::CUDA, dtype);
    }
    if (value == Py_None || PyBool_Check(value)) return std::make_unique<ThreadStateGuard>(read, value == Py_True);
  } else if (PyBool_Check(value)) {
    if (name == "grad_enabled") return std::make_unique<ThreadStateGuard>(grad_mode_enabled, value == Py_True);
    if (name == "inference_mode") return std::make_unique<ThreadStateGuard>(inference_mode_enabled, value == Py_True);
    if (name == "deterministic_algorithms") return std::make_unique<ThreadStateGuard>(deterministic_algorithms, value == Py_True);
  }
  unsupported("state " + name);
}

std::unique_ptr<Guard> make_named_number_guard(GuardBuilder& builder, PyObject* expected) {
  if (text_of(field(expected, "kind")) != "int") unsupported("a float that expression guards speak of");
  const int symbol = builder.symbols.add(text_of(field(expected, "symbol")));
  if (!builder.bound.insert(symbol).second) unsupported("a symbol that two guards define");
  return std::make_unique<NumberGuard>(true, symbol);
}

}  // namespace

Expression GuardBuilder::parse(PyObject* size) {
  return PyUnicode_Check(size) ? Expression::parse(text_of(size), symbols) : Expression(integer_of(size));
}

bool GuardBuilder::all_bound(const Expression& expression) const {
  for (const int symbol : expression.used_symbols()) {
    if (bound.count(symbol) == 0) return false;
  }
  return true;
}

std::unique_ptr<Guard> GuardBuilder::build(PyObject* record, int node) {
  const std::string kind = text_of(field(record, "kind"));
  PyObject* expected = field(record, "expected");
  if (kind == "tensor") return make_tensor_guard(*this, expected, node);
  if (kind == "type") return std::make_unique<TypeGuard>(ClassName(text_of(expected), context));
  if (kind == "equals") return std::make_unique<EqualsGuard>(Constant(expected, context));
  if (kind == "number" && PyDict_Check(expected)) return make_named_number_guard(*this, expected);
  if (kind == "number") return std::make_unique<NumberGuard>(text_of(expected) == "int");
  if (kind == "length") {
    const auto length = static_cast<Py_ssize_t>(integer_of(field(expected, "length")));
    return std::make_unique<LengthGuard>(ClassName(text_of(field(expected, "type")), context), length);
  }
  if (kind == "keys") return make_keys_guard(context, expected);
  if (kind == "contains") return std::make_unique<ContainsGuard>(decode_key(field(expected, "key"), context), field(expected, "present") == Py_True, false);
  if (kind == "has_dictionary") {
    return std::make_unique<ContainsGuard>(interned(text_of(field(expected, "name"))), field(expected, "present") == Py_True, true);
  }
  if (kind == "function") return make_function_guard(context, expected);
  if (kind == "same") return std::make_unique<SameGuard>(tree.add(expected, context));
  if (kind == "different") return make_different_guard(*this, expected);
  if (kind == "distinct") {
    std::vector<int> others;
    for (Py_ssize_t i = 0; i < length_of(expected); ++i) others.push_back(tree.add(item_of(expected, i), context));
    return std::make_unique<DistinctGuard>(std::move(others));
  }
  if (kind == "position") {
    PyObject* position = field(expected, "position");
    return std::make_unique<PositionGuard>(tree.add(field(expected, "table"), context), position == Py_None ? -1 : static_cast<Py_ssize_t>(integer_of(position)));
  }
  if (kind == "state") return make_state_guard(expected);
  if (kind == "expression") {
    Expression expression = parse(expected);
    if (all_bound(expression)) return std::make_unique<ExpressionGuard>(std::move(expression));
    deferred.push_back({guard, -1, 0, false, std::move(expression)});
    return std::make_unique<DeferredGuard>();
  }
  unsupported("guard kind " + kind);
}

GuardSet::GuardSet(PyObject* guards, PyObject* fetch, PyObject* context) : context_(context), caches_(std::make_unique<GuardCaches>()) {
  GuardBuilder builder{context_, tree_, symbols_, {}, {}, 0};
  for (Py_ssize_t i = 0; i < length_of(guards); ++i) {
    PyObject* record = item_of(guards, i);
    PyObject* path = optional_field(record, "path");
    const int node = path != nullptr ? tree_.add(path, context_) : -1;
    builder.guard = static_cast<int>(i);
    const std::string kind = text_of(field(record, "kind"));
    if (kind == "state") {
      PyObject *name = nullptr, *value = nullptr;
      for (Py_ssize_t position = 0; PyDict_Next(field(record, "expected"), &position, &name, &value);) {
        guarded_state_.insert(text_of(text_of(name) == "name" ? value : name));
      }
    }
    try {
      guards_.push_back(builder.build(record, node));
    } catch (const PythonErrorSet&) {
      // These read other paths or bind symbols, which a Python check of the single record cannot do.
      const bool needs_others = kind == "tensor" || kind == "same" || kind == "different" || kind == "distinct" || kind == "position" ||
                                kind == "expression" || kind == "number";
      if (needs_others || !PyErr_ExceptionMatches(PyExc_NotImplementedError)) throw;
      PyErr_Clear();
      guards_.push_back(make_python_guard(context_, record, kind == "builtin"));
    }
    steps_.push_back({tree_.size(), node});
  }
  for (const GuardBuilder::Deferred& deferred : builder.deferred) {
    if (!builder.all_bound(deferred.expected)) unsupported("a size symbol that no tensor guard defines");
  }
  deferred_ = std::move(builder.deferred);
  for (Py_ssize_t i = 0; i < length_of(fetch); ++i) fetch_.push_back(tree_.add(item_of(fetch, i), context_));
  wanted_ = fetch_;
  for (const GuardBuilder::Deferred& deferred : deferred_) {
    if (deferred.node >= 0) wanted_.push_back(deferred.node);
  }
}

bool holds(Guard& guard, Frame& frame, PyObject* value) {
  try {
    return guard.holds(frame, value);
  } catch (const PythonErrorSet&) {
    clear_ordinary_exception();
  } catch (const ExpressionError&) {
  }
  return false;
}

bool GuardSet::evaluate(const GuardBuilder::Deferred& deferred, const Frame& frame) const {
  const int64_t expected = deferred.expected.evaluate(frame.symbols.data());
  if (deferred.node < 0) return expected != 0;
  return tensor_geometry_is(frame.slots[static_cast<size_t>(deferred.node)], deferred.dimension, deferred.stride, expected);
}

int GuardSet::check_in_order(Frame& frame) {
  const int count = size();
  for (int i = 0; i < count; ++i) {
    const GuardStep& step = steps_[static_cast<size_t>(i)];
    while (frame.slots.size() < step.nodes) {
      if (!tree_.follow_next(frame, context_)) return i;
    }
    if (!holds(*guards_[static_cast<size_t>(i)], frame, step.node >= 0 ? frame.slots[static_cast<size_t>(step.node)] : nullptr)) return i;
  }
  while (frame.slots.size() < tree_.size()) {
    if (!tree_.follow_next(frame, context_)) return count;
  }
  return kHolds;
}

int GuardSet::check_deferred(const Frame& frame) const {
  for (const GuardBuilder::Deferred& deferred : deferred_) {
    try {
      if (!evaluate(deferred, frame)) return deferred.guard;
    } catch (const ExpressionError&) {
      return deferred.guard;
    }
  }
  return kHolds;
}

int GuardSet::check(Frame& frame) {
  const GuardProgram program{context_, tree_, guards_, steps_, wanted_};
  frame.reset();
  frame.symbols.assign(static_cast<size_t>(symbols_.size()), 0);
  int result = caches_->check(program, frame);
  if (result == GuardCache::kChanged) {
    frame.reset();
    frame.slots.reserve(tree_.size());
    frame.symbols.assign(static_cast<size_t>(symbols_.size()), 0);
    result = check_in_order(frame);
    if (result == kHolds) caches_->remember(program, frame);
  }
  return result == kHolds ? check_deferred(frame) : result;
}

uint64_t GuardSet::remembered() const { return caches_->answered(); }

GuardSet::~GuardSet() = default;

bool GuardSet::implicit_state_holds() const {
  const auto guarded = [this](const char* name) { return guarded_state_.count(name) != 0; };
  return (!autocast_cpu_enabled() || guarded("autocast_cpu")) && (!autocast_cuda_enabled() || guarded("autocast_cuda")) &&
         (!deterministic_algorithms() || guarded("deterministic_algorithms"));
}

int GuardSet::traverse(visitproc visit, void* arg) const {
  for (const Ref* reference : {&context_.dict, &context_.globals, &context_.builtins, &context_.closure}) {
    if (const int status = reference->traverse(visit, arg)) return status;
  }
  for (const auto& guard : guards_) {
    if (const int status = guard->traverse(visit, arg)) return status;
  }
  return tree_.traverse(visit, arg);
}

void GuardSet::clear() {
  for (auto& guard : guards_) guard->clear();
}

}  // namespace aotcompile
