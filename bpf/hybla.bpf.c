/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include "view.h"
#include "law_hybla.h"

#define LAW hybla
#define LAW_REGISTERED "sky_hybla"
#include "adapter.h"
