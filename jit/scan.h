// SPDX-License-Identifier: Apache-2.0
//
// Just enough reading of C++ for the template: where comments and literals are, where a kernel is
// defined, and where each of its parameters stands. It never decides what is legal (the compiler
// does); it only finds places, and finding none is an answer.
//
// Threading: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvr {

// `text` with the contents of comments and of string and character literals replaced by spaces;
// same length, newlines kept.
std::string BlankNonCode(std::string_view text);

struct LineColumn {
  int line = 0, column = 0;  // from 1
};
LineColumn LineColumnAt(std::string_view text, size_t offset);

// Line `line` (from 1) of `text`, without its end; empty if there is none.
std::string_view LineAt(std::string_view text, int line);

struct KernelDefinition {
  bool is_definition = false;  // a body follows; else a declaration
  bool is_template = false;
  LineColumn name;
  struct Parameter {
    std::string text;  // as written, white space squeezed
    LineColumn at;
  };
  std::vector<Parameter> parameters;
};

// "ns::split<A, B>" → "split".
std::string_view UnqualifiedName(std::string_view entry);

// Every `__global__ ... name(...)` in `text`, in order.
std::vector<KernelDefinition> FindKernels(std::string_view text, std::string_view name);

}  // namespace kvr
