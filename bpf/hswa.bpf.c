/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include "view.h"
#include "law_hswa.h"

#define LAW hswa
#define LAW_REGISTERED "sky_hswa"
#include "adapter.h"
