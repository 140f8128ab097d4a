/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include "view.h"
#include "law_enhanced.h"

#define LAW enhanced
#define LAW_REGISTERED "sky_enhanced"
#include "adapter.h"
