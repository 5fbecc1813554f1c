// See include/guard_cache.h.
#include "include/guard_cache.h"

#include <algorithm>
#include <map>

#include "include/bridge.h"

namespace aotcompile {

namespace {

constexpr size_t kWorthwhile = 24;      // nodes from which a cache pays
constexpr size_t kMostCaches = 64;      // per GuardSet; a block's forward may serve as many instances
constexpr size_t kMostObjects = 64;     // an argument that was more objects than that is another one at each call
constexpr uint64_t kPatience = 256;     // recordings that may be in vain before caching is given up

// The class's version: every change of its attributes or of its bases' gives it another. 0: it has none.
size_t version_of(PyTypeObject* type) {
#if PY_VERSION_HEX < 0x030C0000
  if ((type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) == 0) return 0;
#endif
  return type->tp_version_tag;
}

// A value that can neither change nor lead to user code when it is kept and dropped.
bool is_immutable(PyObject* value) {
  if (PyTuple_CheckExact(value)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) {
      if (!is_immutable(PyTuple_GET_ITEM(value, i))) return false;
    }
    return true;
  }
  return value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) || PyFloat_CheckExact(value) || PyUnicode_CheckExact(value) ||
         PyComplex_CheckExact(value) || PyBytes_CheckExact(value) || is_torch_constant(value);
}

// Arguments of these classes are made anew for each call, or lead to nothing that could be remembered.
bool may_be_remembered(PyObject* argument) {
  const bool container = PyTuple_Check(argument) || PyList_Check(argument) || PyDict_CheckExact(argument);
  return !container && tensor_of(argument) == nullptr && !is_immutable(argument);
}

}  // namespace

// Makes a cache: hears from the paths what they read and sorts the guards.
class CacheRecorder : public Reads {
 public:
  CacheRecorder(GuardCache& cache, const GuardProgram& program, const Frame& frame) : cache_(cache), program_(program), frame_(frame) {}

  void record(const std::vector<bool>& varying) {
    stable_.assign(program_.tree.size(), false);
    for (size_t node = 0; node < program_.tree.size(); ++node) record_node(node, varying);
    for (size_t i = 0; i < program_.guards.size(); ++i) record_guard(static_cast<int>(i));
    follow_before(program_.guards.size(), program_.tree.size());
    for (const int node : program_.wanted) fill(node);
  }

  void dictionary(PyObject* owner, PyObject* key) override {
    if (const auto place = contents_of(owner, true)) add_member(*place, key);
  }
  void table(PyObject* dictionary, PyObject* key) override {
    if (const auto place = contents_of(dictionary, false)) add_member(*place, key);
  }
  void item(PyObject* sequence, Py_ssize_t index) override {
    PyObject* value = PyTuple_Check(sequence) ? PyTuple_GET_ITEM(sequence, index) : PyList_GET_ITEM(sequence, index);
    add({GuardCache::Condition::Kind::Item, sequence, Py_TYPE(sequence), value, nullptr, static_cast<size_t>(index), {}});
  }
  void class_of(PyObject* object) override {
    if (classes_.insert(object).second) add({GuardCache::Condition::Kind::Class, object, Py_TYPE(object), nullptr, nullptr, 0, {}});
  }
  void attributes(PyTypeObject* type) override {
    const size_t version = version_of(type);
    if (version == 0) failed_ = true;
    if (!versions_.insert(type).second) return;
    add({GuardCache::Condition::Kind::Attributes, reinterpret_cast<PyObject*>(type), Py_TYPE(type), nullptr, nullptr, version, {}});
  }
  void again(size_t node) override {
    const int parent = program_.tree.parent(node);
    PyObject* from = parent >= 0 ? frame_.slots[static_cast<size_t>(parent)] : nullptr;
    add({GuardCache::Condition::Kind::Again, from, nullptr, frame_.slots[node], nullptr, node, {}});
  }

 private:
  void add(GuardCache::Condition condition) { cache_.conditions_.push_back(std::move(condition)); }

  void record_node(size_t node, const std::vector<bool>& varying) {
    PyObject* value = frame_.slots[node];
    const Py_ssize_t argument = program_.tree.argument(node);
    if (argument >= 0) {
      if (varying[static_cast<size_t>(argument)] || !may_be_remembered(value)) return;
      cache_.roots_.push_back({argument, value});
      stable_[node] = true;
      return;
    }
    const int parent = program_.tree.parent(node);
    if (parent >= 0 && !stable_[static_cast<size_t>(parent)]) return;
    failed_ = false;
    // The class of the parent decides what a step means. (An owner's class is compared with its dictionary.)
    PyObject* from = parent >= 0 ? frame_.slots[static_cast<size_t>(parent)] : nullptr;
    const bool told = program_.tree.reads(node, from, value, program_.context, *this);
    stable_[node] = told && !failed_;
    if (stable_[node]) ++cache_.spared_;
  }

  // The number of the contents of a dictionary; empty (and `failed_`) where it cannot be watched.
  const size_t* contents_of(PyObject* object, bool owned) {
    const auto known = numbers_.find({object, owned});
    if (known != numbers_.end()) return &known->second;
    PyObject** place = owned ? _PyObject_GetDictPtr(object) : nullptr;
    PyObject* dictionary = owned ? (place != nullptr ? *place : nullptr) : object;
    if (dictionary == nullptr || !PyDict_Check(dictionary)) {
      failed_ = true;
      return nullptr;
    }
    const size_t number = cache_.contents_.size();
    cache_.contents_.emplace_back();
    dictionaries_.push_back(dictionary);
    add({owned ? GuardCache::Condition::Kind::Dictionary : GuardCache::Condition::Kind::Table, object, Py_TYPE(object), dictionary, place, number,
         DictVersion(dictionary)});
    classes_.insert(object);
    return &numbers_.emplace(std::make_pair(object, owned), number).first->second;
  }

  void add_member(size_t number, PyObject* key) {
    PyObject* value = PyDict_GetItemWithError(dictionaries_[number], key);
    if (value == nullptr && PyErr_Occurred()) throw PythonErrorSet{};
    cache_.contents_[number].members.push_back({Ref::borrow(key), value});
    if (value != nullptr) keep(value);
  }

  bool keep(PyObject* value) {
    if (!is_immutable(value)) return false;
    cache_.kept_.push_back(Ref::borrow(value));
    return true;
  }

  void record_guard(int index) {
    const GuardStep& step = program_.steps[static_cast<size_t>(index)];
    const Guard& guard = *program_.guards[static_cast<size_t>(index)];
    follow_before(static_cast<size_t>(index), step.nodes);
    const bool stable = step.node >= 0 && stable_[static_cast<size_t>(step.node)];
    PyObject* value = stable ? frame_.slots[static_cast<size_t>(step.node)] : nullptr;
    if (stable && is_spared(guard, index, value)) {
      ++cache_.spared_;
      return;
    }
    std::vector<int> others;
    guard.add_nodes(others);
    for (const int node : others) fill(node);
    cache_.actions_.push_back({index, step.node, value, index});
  }

  bool is_spared(const Guard& guard, int index, PyObject* value) {
    switch (guard.depends()) {
      case Guard::Depends::Nothing: return keep(value);
      case Guard::Depends::Class:
        if (!keep(value)) class_of(value);
        return true;
      case Guard::Depends::Contents:
        if (!PyDict_Check(value) || !guard.reads_plainly(Py_TYPE(value))) return false;
        return add_guard(contents_of(value, false), index, value);
      case Guard::Depends::Dictionary: return add_guard(contents_of(value, true), index, value);
      case Guard::Depends::Anything: return false;
    }
    return false;
  }

  bool add_guard(const size_t* number, int index, PyObject* value) {
    if (number == nullptr) return false;
    cache_.contents_[*number].guards.emplace_back(index, value);
    return true;
  }

  // Paths that are not remembered are followed where the check in full follows them: behind the guards that protect them.
  void follow_before(size_t guard, size_t count) {
    for (; followed_ < count; ++followed_) {
      if (stable_[followed_]) continue;
      const int parent = program_.tree.parent(followed_);
      if (parent >= 0) fill(parent);
      cache_.actions_.push_back({-1, static_cast<int>(followed_), nullptr, static_cast<int>(guard)});
    }
  }

  void fill(int node) {
    if (stable_[static_cast<size_t>(node)] && filled_.insert(node).second) cache_.filled_.emplace_back(node, frame_.slots[static_cast<size_t>(node)]);
  }

  GuardCache& cache_;
  const GuardProgram& program_;
  const Frame& frame_;
  std::vector<bool> stable_;
  std::vector<PyObject*> dictionaries_;                        // per contents
  std::map<std::pair<PyObject*, bool>, size_t> numbers_;       // (object, its __dict__ or itself) -> contents
  std::set<PyObject*> classes_;                                // objects whose class is compared
  std::set<PyTypeObject*> versions_;
  std::set<int> filled_;
  size_t followed_ = 0;
  bool failed_ = false;
};

GuardCache::GuardCache(const GuardProgram& program, const Frame& frame, const std::vector<bool>& varying) {
  CacheRecorder(*this, program, frame).record(varying);
}

bool GuardCache::is_of(const Frame& frame) const {
  return std::all_of(roots_.begin(), roots_.end(), [&](const Root& root) {
    return root.argument < frame.argument_count && frame.arguments[root.argument] == root.object;
  });
}

bool GuardCache::same_contents(const GuardProgram& program, const Contents& contents, PyObject* dictionary, Frame& frame) const {
  for (const Member& member : contents.members) {
    PyObject* found = PyDict_GetItemWithError(dictionary, member.key.get());
    if (found == nullptr && PyErr_Occurred()) throw PythonErrorSet{};
    if (found != member.value) return false;
  }
  for (const auto& [guard, value] : contents.guards) {
    if (!holds(*program.guards[static_cast<size_t>(guard)], frame, value)) return false;
  }
  return true;
}

bool GuardCache::unchanged(const GuardProgram& program, Frame& frame) {
  for (Condition& condition : conditions_) {
    switch (condition.kind) {
      case Condition::Kind::Dictionary:
        if (Py_TYPE(condition.object) != condition.type || *condition.place != condition.value) return false;
        break;
      case Condition::Kind::Table:
      case Condition::Kind::Class:
        if (Py_TYPE(condition.object) != condition.type) return false;
        break;
      case Condition::Kind::Item: {
        if (Py_TYPE(condition.object) != condition.type) return false;
        const auto index = static_cast<Py_ssize_t>(condition.number);
        if (index >= Py_SIZE(condition.object)) return false;
        PyObject* found = PyTuple_Check(condition.object) ? PyTuple_GET_ITEM(condition.object, index) : PyList_GET_ITEM(condition.object, index);
        if (found != condition.value) return false;
        break;
      }
      case Condition::Kind::Attributes:
        if (version_of(reinterpret_cast<PyTypeObject*>(condition.object)) != condition.number) return false;
        break;
      case Condition::Kind::Again: {
        PyObject* found = program.tree.follow(condition.number, condition.object, frame, program.context);
        if (found == nullptr && PyErr_Occurred()) throw PythonErrorSet{};
        const bool same = found == condition.value;
        Py_XDECREF(found);
        if (!same) return false;
        break;
      }
    }
    const bool versioned = condition.kind == Condition::Kind::Dictionary || condition.kind == Condition::Kind::Table;
    if (!versioned || condition.version.unchanged()) continue;
    DictVersion version = condition.version;
    version.renew();  // before the contents are read: whatever changes them meanwhile is seen the next time
    if (!same_contents(program, contents_[condition.number], condition.value, frame)) return false;
    condition.version = version;
  }
  return true;
}

int GuardCache::check(const GuardProgram& program, Frame& frame) {
  if (!unchanged(program, frame)) return kChanged;
  frame.slots.assign(program.tree.size(), nullptr);
  for (const auto& [node, value] : filled_) frame.slots[static_cast<size_t>(node)] = Ref::borrow(value).release();
  for (const Action& action : actions_) {
    const auto node = static_cast<size_t>(action.node);
    if (action.guard < 0) {
      const int parent = program.tree.parent(node);
      frame.slots[node] = program.tree.follow(node, parent >= 0 ? frame.slots[static_cast<size_t>(parent)] : nullptr, frame, program.context);
      if (frame.slots[node] != nullptr) continue;
      clear_ordinary_exception();
      return action.step;
    }
    PyObject* value = action.value == nullptr && action.node >= 0 ? frame.slots[node] : action.value;
    if (!holds(*program.guards[static_cast<size_t>(action.guard)], frame, value)) return action.guard;
  }
  return kHolds;
}

int GuardCaches::check(const GuardProgram& program, Frame& frame) {
  for (const std::shared_ptr<GuardCache>& candidate : caches_) {
    if (!candidate->is_of(frame)) continue;
    const std::shared_ptr<GuardCache> cache = candidate;
    const int result = cache->check(program, frame);
    if (result != GuardCache::kChanged) ++answered_;
    return result;
  }
  return GuardCache::kChanged;
}

void GuardCaches::remember(const GuardProgram& program, const Frame& frame) {
  if (program.tree.size() < kWorthwhile || !DictVersion::available()) return;
  if (recorded_ > kPatience && recorded_ > answered_) return;
  ++recorded_;
  seen_.resize(static_cast<size_t>(frame.argument_count));
  std::vector<bool> varying;
  for (size_t i = 0; i < seen_.size(); ++i) {
    if (seen_[i].size() <= kMostObjects) seen_[i].insert(frame.arguments[i]);
    varying.push_back(seen_[i].size() > kMostObjects);
  }
  auto cache = std::make_shared<GuardCache>(program, frame, varying);
  caches_.erase(std::remove_if(caches_.begin(), caches_.end(), [&](const auto& old) { return old->is_of(frame); }), caches_.end());
  if (cache->spared() < kWorthwhile) return;
  if (caches_.size() == kMostCaches) caches_.erase(caches_.begin());
  caches_.push_back(std::move(cache));
}

}  // namespace aotcompile
