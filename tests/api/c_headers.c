/* SPDX-License-Identifier: Apache-2.0
 *
 * kvr.h is C and C++, by itself and beside the plugin ABI, without a warning; compiled as both. */
#include "kvr.h"
#include "kvr_plugin.h"

int kvr_headers_agree(void);
int kvr_headers_agree(void) {
  return (int)KVR_CODE_OK == KVR_OK && (int)KVR_CODE_INTERNAL == KVR_INTERNAL &&
         sizeof(kvr_dltensor) == 48;
}
