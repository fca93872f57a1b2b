#pragma once
// The part of a start that makes files: bundles and system-info of one activation.

#include <map>
#include <memory>
#include <string>

#include "agent/image_store.h"
#include "agent/node_dirs.h"
#include "base/status.h"
#include "torpor/v1/node.pb.h"

namespace torpor::agent {

using ImagesByReference = std::map<std::string, std::shared_ptr<const Image>>;

// INTERNAL INVALID_CONTAINER_CONFIG for a volume that this version cannot provide. Pure; asked
// before anything is touched.
Status CheckVolumes(const torpor::v1::WorkloadSpec& spec);

// References of all images that the workload needs, each once.
std::vector<std::string> ImagesOf(const torpor::v1::WorkloadSpec& spec);

// Writes system-info/<volume>/..., bundles/<container>/config.json and empty durable directories
// into fresh directories.
// `images` holds every one of ImagesOf.
Status WriteBundles(const NodeDirs& dirs, const torpor::v1::StartActorRequest& request,
                    const ImagesByReference& images);

}  // namespace torpor::agent
