#pragma once
// The report of an operation as a picture in text.

#include <string>

#include "torpor/v1/ops.pb.h"

namespace torpor::cli {

// Phases as bars on one time axis, then each choice with its reason and what lost. Pure.
std::string DrawReport(const torpor::v1::OperationReport& report);

}  // namespace torpor::cli
