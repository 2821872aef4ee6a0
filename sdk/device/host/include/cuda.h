// SPDX-License-Identifier: Apache-2.0
//
// Nothing of the driver API exists in kernels.
#pragma once
