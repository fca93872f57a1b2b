#pragma once
// Precompiled for the targets that work on the API's messages and records.
#include "base/pch/std_pch.h"

#include "ateapi/ateapi.pb.h"
#include "torpor/v1/ops.pb.h"
#include "torpor/v1/record.pb.h"
