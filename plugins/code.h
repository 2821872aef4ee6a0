// SPDX-License-Identifier: Apache-2.0
//
// The plugin ABI's functions (sdk/kvr_plugin.h) behind core's interfaces. A library is loaded by
// the first call that needs its code, and stays loaded as long as what is made here.
//
// What a function returns is not trusted: codes are those of the ABI or kInternal, messages are cut
// to one line, exceptions are caught, references must give finite bounds and quality finite values.
// Errors begin with the plugin and the function.
//
// Threading: all of it may be called concurrently.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/op.h"
#include "core/variant.h"
#include "plugins/library.h"
#include "plugins/manifest.h"

namespace kvr {

// `plan`, `launch` and `reference`: which functions the manifest asks for. `tunables`: the
// variant's, of which the reference function gets the values of those of scope quality.
std::shared_ptr<const VariantCode> MakeVariantCode(const OpSpec& op,
                                                   const std::vector<Tunable>& tunables,
                                                   bundle::CodeEntry plan, bundle::CodeEntry launch,
                                                   bundle::CodeEntry reference);

std::unique_ptr<Operation> MakePluginOperation(OpSpec spec,
                                               std::shared_ptr<const PluginLibrary> library);

}  // namespace kvr
