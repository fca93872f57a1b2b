#pragma once
// Precompiled for the targets at the rim that speak gRPC.
#include "base/pch/proto_pch.h"

#include <grpcpp/grpcpp.h>
