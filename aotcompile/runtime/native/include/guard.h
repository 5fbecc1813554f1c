// Guards: the records of plan["guards"], compiled into one pass over the paths they read. Kinds and semantics: ir/guards.py and PROTOCOL.md.
#pragma once

#include "ambient.h"
#include "constant.h"
#include "expression.h"
#include "path.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace aotcompile {

// One guard. `value` is what its path leads to (nullptr for a guard without a path).
class Guard {
 public:
  virtual ~Guard() = default;
  // May throw PythonErrorSet (an ordinary exception means that the guard does not hold) and ExpressionError.
  virtual bool holds(Frame& frame, PyObject* value) = 0;

  // What the answer depends on beyond which object the value is; `Nothing` and `Contents` under conditions that guard_cache.cpp looks at.
  enum class Depends {
    Anything,    // it must be asked again
    Nothing,     // if the value is immutable
    Class,       // the value's class
    Contents,    // the value's class and items, if it is a dict whose class `reads_plainly`
    Dictionary,  // the value's __dict__
  };
  virtual Depends depends() const { return Depends::Anything; }
  virtual bool reads_plainly(PyTypeObject*) const { return false; }
  // Other nodes that `holds` looks up in the frame.
  virtual void add_nodes(std::vector<int>&) const {}
  virtual int traverse(visitproc, void*) const { return 0; }
  virtual void clear() {}
};

// Whether a guard holds; an ordinary exception means that it does not. Throws PythonErrorSet for KeyboardInterrupt and the like.
bool holds(Guard& guard, Frame& frame, PyObject* value);

// Follow the tree up to `nodes` nodes, then check the guard of the same number, which is of `node` (-1: of none).
struct GuardStep {
  size_t nodes;
  int node;
};

// What guards are built from: the context, the tree that their paths join, and the symbols that are bound when the guard now being built is checked.
struct GuardBuilder {
  const Context& context;
  PathTree& tree;
  SymbolTable& symbols;
  std::set<int> bound;

  // A comparison that cannot be made where it stands because a symbol is bound only by a later guard: made after the last guard.
  struct Deferred {
    int guard, node, dimension;  // node -1: `expected` itself must be true
    bool stride;
    Expression expected;
  };
  std::vector<Deferred> deferred;
  int guard = 0;

  Expression parse(PyObject* size);  // an int or a text
  bool all_bound(const Expression& expression) const;
  // The guard for a record; NotImplementedError if only the Python side can check it.
  std::unique_ptr<Guard> build(PyObject* record, int node);
};

std::unique_ptr<Guard> make_tensor_guard(GuardBuilder& builder, PyObject* facts, int node);
std::unique_ptr<Guard> make_different_guard(GuardBuilder& builder, PyObject* paths);

// Whether size (or stride) number `dimension` of the tensor object is `expected`; a stride is not compared where it does not matter.
bool tensor_geometry_is(PyObject* tensor, int dimension, bool stride, int64_t expected);

class GuardCaches;

// All guards of a variant, and the paths of the values wanted when they hold.
class GuardSet {
 public:
  GuardSet(PyObject* guards, PyObject* fetch, PyObject* context);
  ~GuardSet();
  static constexpr int kHolds = -1;

  // kHolds, or the number of the first guard that does not hold; size() if a wanted value cannot be reached.
  int check(Frame& frame);
  // Autocast and deterministic mode are off, as far as no guard says what they must be.
  bool implicit_state_holds() const;

  // Checks that found nothing changed since an earlier one (guard_cache.h).
  uint64_t remembered() const;
  int size() const { return static_cast<int>(guards_.size()); }
  size_t fetch_count() const { return fetch_.size(); }
  // Borrowed from the frame of a check that held.
  PyObject* fetched(const Frame& frame, size_t index) const { return frame.slots[static_cast<size_t>(fetch_[index])]; }
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  bool evaluate(const GuardBuilder::Deferred& deferred, const Frame& frame) const;
  int check_in_order(Frame& frame);
  int check_deferred(const Frame& frame) const;

  Context context_;
  PathTree tree_;
  SymbolTable symbols_;
  std::vector<std::unique_ptr<Guard>> guards_;
  std::vector<GuardStep> steps_;
  std::vector<GuardBuilder::Deferred> deferred_;
  std::vector<int> fetch_;
  std::vector<int> wanted_;  // nodes that are needed after the guards: fetched or compared in the end
  std::set<std::string> guarded_state_;
  std::unique_ptr<GuardCaches> caches_;
};

}  // namespace aotcompile
