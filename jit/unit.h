// SPDX-License-Identifier: Apache-2.0
//
// One translation unit: a variant's sources for one compile-scope config, and everything the
// compiler may include. RenderUnit (jit/template.h) makes the text and the bundle's own files,
// ResolveIncludes (jit/includes.h) completes `headers`; from then on the unit is closed: a
// compiler reads nothing else, so its content is all that a key needs to hash.
//
// The text includes each source by its bundle-relative name and ends with assertions placed by
// #line, so compilers report the contributor's own file and line by themselves. No absolute path
// and no variant name enters the text: equal sources under equal constants are one binary.
//
// Threading and ownership: a value; contents are shared and immutable.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/fingerprint.h"

namespace kvr {

// A file that the unit may include, under the one name that #include directives give it.
struct UnitHeader {
  std::string name;                            // "split.cu", "kvr/device.cuh", "cuda_bf16.h"
  std::shared_ptr<const std::string> content;  // as the compiler shall see it; never null
  Fingerprint hash;                            // of content
  std::string path;                            // where it lies, for people; may be empty
};

// A {{NAME}} that was replaced, to carry columns back to the author's text.
struct Substitution {
  int line = 0;    // counts from 1
  int column = 0;  // in the rendered line, from 1
  int rendered_size = 0;
  int original_size = 0;
};

// A file of the bundle, as the author wrote it; what diagnostics quote.
struct BundleFile {
  std::string name;
  std::string path;  // where it was read; messages give it if it is not empty
  std::shared_ptr<const std::string> original;
  std::vector<Substitution> substitutions;  // sorted
};

// A place in a bundle file; counts from 1, column 0 is unknown.
struct SourceSite {
  std::string file;
  int line = 0;
  int column = 0;
};

// A generated check; when a compiler says `message`, this is where it belongs.
struct UnitAssertion {
  std::string message;
  SourceSite site;
};

struct Unit {
  std::string name;  // "mla_sparse_decode/baseline {BLOCK_H=16}": for people, not hashed
  std::string text;  // the main file
  std::vector<UnitHeader> headers;      // sorted by name
  std::vector<std::string> entries;     // name expressions to instantiate; unique, in plan order
  std::vector<SourceSite> entry_sites;  // where each entry is defined, else the manifest's line
  std::vector<BundleFile> files;
  std::vector<UnitAssertion> assertions;
  std::vector<std::string> missing;  // included somewhere, found nowhere: harmless in a branch
                                     // that is not taken, else the compiler's error says so
  Fingerprint fingerprint;           // of text, entries and headers; set by ResolveIncludes

  const UnitHeader* Header(std::string_view header) const {
    for (const UnitHeader& h : headers)
      if (h.name == header) return &h;
    return nullptr;
  }
};

// What the generated checks are named, a number follows: tells generated lines, which
// stand under the author's line numbers, from the author's.
inline constexpr std::string_view kSignatureCheck = "kvr_signature_check_";

// What the main file is called in compilers' messages.
inline constexpr std::string_view kUnitFileName = "kvr_unit.cu";

}  // namespace kvr
