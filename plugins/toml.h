// SPDX-License-Identifier: Apache-2.0
//
// toml++ as this house uses it: syntax errors as values, and its assertions as a catchable
// exception. The parser of toml++ 3.3 meets some malformed text ("[.a]", "a = [}]") with nothing
// but an assertion: an abort in debug builds, undefined behaviour where NDEBUG is set. Here the
// assertions stay on in every build. The library is renamed so that this copy, which differs, and
// another house's are not one to the linker.
#pragma once

namespace kvr::bundle {

struct TomlAssertion {};
inline void FailTomlAssertion() { throw TomlAssertion(); }

}  // namespace kvr::bundle

#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_EXCEPTIONS 0
#define TOML_ASSERT(condition) \
  (static_cast<bool>(condition) ? void() : ::kvr::bundle::FailTomlAssertion())
#define toml kvr_checked_toml
#include <toml++/toml.h>
#undef toml
#pragma pop_macro("NDEBUG")

namespace kvr::bundle {
namespace toml = ::kvr_checked_toml;
}  // namespace kvr::bundle
