/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan function of null/planned: what the expressions of a manifest cannot
 * say, C can. It runs on the launch path, so it neither locks nor allocates,
 * and the same request always gives the same values.
 */
#include <stdio.h>

#include "kvr_plugin.h"

/* Positions in variant.toml. */
enum { THREADS, WAVES };
enum { RESIDENT_BLOCKS };

static int plan(const kvr_plan_request* request, int64_t* values, char* error, size_t error_size) {
  const int64_t threads = request->tunables[THREADS];
  const int64_t threads_per_sm = 2048;
  if (threads > request->device->max_threads_per_block) {
    snprintf(error, error_size, "THREADS is %lld; a block on %s has at most %d", (long long)threads,
             request->device->name, request->device->max_threads_per_block);
    return KVR_FAILED_PRECONDITION; /* this config does not fit: another may */
  }
  values[RESIDENT_BLOCKS] = request->device->sms * (threads_per_sm / threads);
  return KVR_OK;
}

static const kvr_variant planned = {
    .size = sizeof(kvr_variant),
    .op = "null",
    .name = "planned",
    .plan = plan,
};

static const kvr_variant* const variants[] = {&planned};

static const kvr_plugin plugin = {
    .size = sizeof(kvr_plugin),
    .abi_major = KVR_ABI_MAJOR,
    .abi_minor = KVR_ABI_MINOR,
    .variant_count = 1,
    .variants = variants,
};

/* The one symbol that the library exports. */
KVR_EXPORT const kvr_plugin* kvr_plugin_v1(void) { return &plugin; }
