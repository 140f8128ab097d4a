/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include "view.h"
#include "law_veno.h"

#define LAW veno
#define LAW_REGISTERED "sky_veno"
#include "adapter.h"
