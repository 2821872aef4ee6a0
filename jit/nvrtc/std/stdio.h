// SPDX-License-Identifier: Apache-2.0
//
// NVRTC has printf itself.
#pragma once
