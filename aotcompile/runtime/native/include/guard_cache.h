// What checks that held have seen, so that the next check need only see that nothing has changed.
//
// Most guards of a large model speak of objects that hang together by dictionaries (`self.__dict__["_modules"]["norm"].__dict__["eps"]`), and nearly
// all of them speak of things that do not change between two calls. After a check that held, a `GuardCache` knows for each path which dictionaries,
// classes and sequences its steps read, and for each guard what else its answer depends on:
//
//     self.norm is nn.LayerNorm      the class of the object: compared again
//     self.norm.eps == 1e-5          nothing, as long as `eps` is the same object: an immutable value, kept alive
//     len(self.norm._forward_hooks)  the contents of that dict: its version (dict_version.h)
//     self.norm.weight is float32[8] everything: checked again, as are guards on whatever this file does not know
//
// The next check compares one version per dictionary instead of following each path. A dictionary of another version is read again: the same objects
// under the same keys keep the rest of the cache. No object but immutable values and keys is kept alive. That an address may have been given to
// another object meanwhile is no danger: objects are compared in the order in which one leads to the next, versions are never given twice, and of
// what has no version (classes, items of sequences, tensors, functions) the contents are compared at each check.
#pragma once

#include "dict_version.h"
#include "guard.h"

#include <memory>
#include <set>
#include <vector>

namespace aotcompile {

// What a cache is made of and works for; the GuardSet's own.
struct GuardProgram {
  const Context& context;
  const PathTree& tree;
  const std::vector<std::unique_ptr<Guard>>& guards;
  const std::vector<GuardStep>& steps;
  const std::vector<int>& wanted;  // nodes that must be in the frame after a check: fetched values, deferred comparisons
};

class GuardCache {
 public:
  // Of a frame whose check held. `varying`: arguments that are another object at each call; what hangs on them is not remembered.
  // Throws PythonErrorSet.
  GuardCache(const GuardProgram& program, const Frame& frame, const std::vector<bool>& varying);

  static constexpr int kHolds = -1, kChanged = -2;
  // kChanged: something differs from what was seen, the frame is to be checked in full. Else as GuardSet::check_in_order, for the very same frame.
  // May throw PythonErrorSet.
  int check(const GuardProgram& program, Frame& frame);
  // Whether the arguments that the cache hangs on are those of the frame.
  bool is_of(const Frame& frame) const;
  // Guards and paths that need no look of their own any more.
  size_t spared() const { return spared_; }

 private:
  friend class CacheRecorder;
  struct Root {
    Py_ssize_t argument;
    PyObject* object;
  };
  // Compared in order; each object is reached through the ones before it.
  struct Condition {
    enum class Kind { Dictionary, Table, Item, Class, Attributes, Again } kind;
    PyObject* object;        // Dictionary: the owner. Table: the dict. Item: the sequence. Attributes: the class. Again: the parent
    PyTypeObject* type;      // of the object
    PyObject* value;         // Dictionary: the owner's dict. Item, Again: what was there
    PyObject** place;        // Dictionary: where the owner keeps its dict
    size_t number;           // Dictionary, Table: of `contents_`. Item: the index. Attributes: the version tag. Again: the node
    DictVersion version;     // Dictionary, Table
  };
  struct Member {
    Ref key;
    PyObject* value;  // nullptr: no such key
  };
  // What was read of a dictionary.
  struct Contents {
    std::vector<Member> members;
    std::vector<std::pair<int, PyObject*>> guards;  // that speak of it, and their values
  };
  // What is done at each check after the conditions: follow `node` (guard -1), or check a guard of a value (nullptr: the node's, in the frame).
  struct Action {
    int guard, node;
    PyObject* value;
    int step;  // the guard before which the node must be reached
  };

  bool unchanged(const GuardProgram& program, Frame& frame);
  bool same_contents(const GuardProgram& program, const Contents& contents, PyObject* dictionary, Frame& frame) const;

  std::vector<Root> roots_;
  std::vector<Condition> conditions_;
  std::vector<Contents> contents_;
  std::vector<Action> actions_;
  std::vector<std::pair<int, PyObject*>> filled_;  // nodes whose values the actions need in the frame
  std::vector<Ref> kept_;
  size_t spared_ = 0;
};

// The caches of one GuardSet, one for each set of objects that its arguments were.
class GuardCaches {
 public:
  // As GuardCache::check with the cache of the frame's arguments; kChanged also where there is none.
  int check(const GuardProgram& program, Frame& frame);
  // After a check in full that held.
  void remember(const GuardProgram& program, const Frame& frame);
  // Checks that were answered from a cache.
  uint64_t answered() const { return answered_; }

 private:
  std::vector<std::shared_ptr<GuardCache>> caches_;  // shared: a check may run Python code, another thread may replace the cache meanwhile
  std::vector<std::set<PyObject*>> seen_;            // per argument: objects that it was when something was remembered (only compared)
  uint64_t answered_ = 0, recorded_ = 0;
};

}  // namespace aotcompile
