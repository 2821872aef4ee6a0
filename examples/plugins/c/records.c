/* SPDX-License-Identifier: Apache-2.0
 *
 * What kvr_add_plugin() writes, by hand, for a build without CMake: the plugin's name and its
 * files. Paths are relative to where the compiler is run, here this directory.
 */
#include "kvr_plugin.h"

KVR_PLUGIN("scale_rows", "1.0.0");
KVR_PLUGIN_FILE("scale_rows/definition.json", "scale_rows/definition.json");
KVR_PLUGIN_FILE("scale_rows/baseline/variant.toml", "scale_rows/baseline/variant.toml");
KVR_PLUGIN_FILE("scale_rows/baseline/scale.cu", "scale_rows/baseline/scale.cu");
