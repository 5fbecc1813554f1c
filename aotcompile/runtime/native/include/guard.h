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
  virtual int traverse(visitproc, void*) const { return 0; }
  virtual void clear() {}
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

// All guards of a variant, and the paths of the values wanted when they hold.
class GuardSet {
 public:
  GuardSet(PyObject* guards, PyObject* fetch, PyObject* context);
  static constexpr int kHolds = -1;

  // kHolds, or the number of the first guard that does not hold; size() if a wanted value cannot be reached.
  int check(Frame& frame);
  // Autocast and deterministic mode are off, as far as no guard says what they must be.
  bool implicit_state_holds() const;

  int size() const { return static_cast<int>(guards_.size()); }
  size_t fetch_count() const { return fetch_.size(); }
  // Borrowed from the frame of a check that held.
  PyObject* fetched(const Frame& frame, size_t index) const { return frame.slots[static_cast<size_t>(fetch_[index])]; }
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  struct Step {
    size_t nodes;  // follow the tree up to this many nodes, then check the guard
    int node;      // of the guard's path, or -1
  };
  bool evaluate(const GuardBuilder::Deferred& deferred, const Frame& frame) const;
  int check_in_order(Frame& frame);

  Context context_;
  PathTree tree_;
  SymbolTable symbols_;
  std::vector<std::unique_ptr<Guard>> guards_;
  std::vector<Step> steps_;
  std::vector<GuardBuilder::Deferred> deferred_;
  std::vector<int> fetch_;
  std::set<std::string> guarded_state_;
};

}  // namespace aotcompile
