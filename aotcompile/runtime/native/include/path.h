// Access paths: following them from a region's arguments, globals, closure and sys.modules.
//
// All paths of a variant form one tree, so that a common prefix (`self.layers[3]`) is followed once per check:
//
//     node 0  argument 0                     self
//     node 1  dictionary(0, "_modules")      self.__dict__["_modules"]
//     node 2  item(1, "layers")              self.__dict__["_modules"]["layers"]
//
// A node's parent has a smaller number; following the nodes in order fills `Frame::slots`.
#pragma once

#include "object.h"

#include <c10/util/SmallVector.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace aotcompile {

// One check in progress: the arguments (borrowed), the values reached so far (owned) and the size symbols bound so far.
struct Frame {
  Frame(PyObject* const* arguments, Py_ssize_t argument_count) : arguments(arguments), argument_count(argument_count) {}
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  ~Frame() { reset(); }
  void reset() {
    for (PyObject* value : slots) Py_XDECREF(value);
    slots.clear();
  }

  PyObject* const* arguments;
  Py_ssize_t argument_count;
  c10::SmallVector<PyObject*, 48> slots;  // by node; a remembered check leaves those empty that nothing asks for
  c10::SmallVector<int64_t, 16> symbols;
  std::optional<bool> differentiates_forward;  // whether a level of forward-mode differentiation is open; empty until a guard asks
};

// What the Python side hands every constructor; see PROTOCOL.md.
struct Context {
  explicit Context(PyObject* dict);
  std::string remap(const std::string& module) const;  // "mypkg.sub" -> "generated.mypkg.sub"

  Ref dict;                             // the whole of it
  std::vector<std::string> parameters;  // names of the region's arguments
  Ref globals, builtins, closure;       // dict, dict, dict of cells
  std::string package, import_name;
};

// Told by `PathTree::reads` what the value of a step depends on. Keys are str or int.
class Reads {
 public:
  virtual ~Reads() = default;
  virtual void dictionary(PyObject* owner, PyObject* key) = 0;       // owner.__dict__[key], or that there is none
  virtual void table(PyObject* dictionary, PyObject* key) = 0;       // the same of a dict; one that was read from something told before
  virtual void item(PyObject* sequence, Py_ssize_t index) = 0;       // of a list or tuple
  virtual void class_of(PyObject* object) = 0;
  virtual void attributes(PyTypeObject* type) = 0;                   // which attributes the class has, with those of its bases
  virtual void again(size_t node) = 0;                               // only following the step again tells; it is cheap and runs no user code
};

class PathTree {
 public:
  // The node of a path given as JSON `[[root kind, name], [[step, part...], ...]]`. Throws NotImplementedError for an unknown step.
  int add(PyObject* path, const Context& context);
  size_t size() const { return nodes_.size(); }

  // Follows node number `frame.slots.size()` and appends its value. False: the value cannot be reached (no exception is left set).
  bool follow_next(Frame& frame, const Context& context) const;
  // The value of a node (a new reference) from its parent's; nullptr if it cannot be reached, maybe with an exception set.
  PyObject* follow(size_t node, PyObject* parent, const Frame& frame, const Context& context) const;

  int parent(size_t node) const { return nodes_[node].parent; }
  // The number of the argument that the node is, or -1.
  Py_ssize_t argument(size_t node) const { return nodes_[node].kind == Kind::Argument ? nodes_[node].index : -1; }
  // What a node's value depends on, given that the parent is the same object. False: on something that cannot be told; the step must be followed at
  // each check. Arguments are the caller's to compare.
  bool reads(size_t node, PyObject* parent, PyObject* value, const Context& context, Reads& reads) const;
  int traverse(visitproc visit, void* arg) const;

 private:
  enum class Kind { Argument, Closure, Global, Module, Attribute, Dictionary, Item, OwnItem, Type, Keys, Values, Referent, Cell, ContextVariable, Call };
  struct Node {
    Kind kind;
    int parent;
    Py_ssize_t index;  // argument number, cell number, or item index (-1: not an index)
    Ref key;           // name or item key
    std::string text;  // the step's repr: equal steps are shared
  };

  int insert(Node node);
  Node root_node(PyObject* root, const Context& context) const;
  Node step_node(PyObject* step, int parent, const Context& context) const;

  std::vector<Node> nodes_;
  std::map<std::pair<int, std::string>, int> index_;  // (parent, text) -> node
};

// A path part or a key from JSON: {"tuple": [...]} is a tuple, {"constant": {...}} what `guards.item_key` gives, everything else is itself.
Ref decode_part(PyObject* part, const Context& context);

// `guards.item_key`: a class, an enum's member, a dtype, ... by name.
Ref item_key(PyObject* constant, const Context& context);

}  // namespace aotcompile
