/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include "view.h"
#include "law_hybic.h"

#define LAW hybic
#define LAW_REGISTERED "sky_hybic"
#include "adapter.h"
