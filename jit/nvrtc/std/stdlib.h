// SPDX-License-Identifier: Apache-2.0
//
// NVRTC has abs, malloc and free itself.
#pragma once
