#pragma once
// A capture on disk, a store in memory and a target, for tests of save and load.

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "objstore/memory/memory_store.h"
#include "snapshot/format/layout.h"
#include "snapshot/load/load.h"
#include "snapshot/save/save.h"
#include "snapshot/testing/sample.h"
#include "snapshot/testing/temp_dir.h"

namespace torpor::snapshot {

class SnapshotFixture : public testing::Test {
 protected:
  // Adds a file to the capture.
  void Capture(const std::string& name, const std::string& bytes,
               torpor::v1::Fidelity needed_from = torpor::v1::FIDELITY_MEMORY) {
    WriteFileTo(source_ / name, bytes);
    manifest_.files.push_back(SampleFile(name, static_cast<int64_t>(bytes.size()), needed_from));
  }

  StatusOr<torpor::v1::UploadResult> Save(Transfer* transfer = nullptr) {
    Transfer own(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(2));
    return SaveTo(&store_, transfer != nullptr ? transfer : &own);
  }

  StatusOr<torpor::v1::UploadResult> SaveTo(objstore::ObjectStore* store, Transfer* transfer) {
    SaveArgs args;
    args.source = &source_.fd();
    args.manifest = manifest_;
    args.store = store;
    args.prefix = "snap";
    args.resources = resources_.get();
    args.transfer = transfer;
    return SaveSnapshot(std::move(args));
  }

  LoadArgs ArgsOfLoad(const TempDir& target, Transfer* transfer) {
    LoadArgs args;
    args.target = &target.fd();
    args.store = &store_;
    args.prefix = "snap";
    args.resources = resources_.get();
    args.transfer = transfer;
    return args;
  }

  StatusOr<torpor::v1::FetchResult> Load(const TempDir& target, const std::string& sha256 = {}) {
    Transfer transfer(Clock::Real(), Clock::Real()->Now() + std::chrono::minutes(2));
    LoadArgs args = ArgsOfLoad(target, &transfer);
    args.manifest_sha256 = sha256;
    return LoadSnapshot(args);
  }

  std::string Object(const std::string& key) {
    auto bytes = objstore::ReadAll(store_, key, 1 << 30);
    EXPECT_OK(bytes);
    return std::move(bytes).value();
  }

  TempDir source_;
  Manifest manifest_ = SampleManifest();
  objstore::MemoryStore store_;
  std::unique_ptr<Resources> resources_ = std::move(Resources::Create({}, Clock::Real())).value();
};

}  // namespace torpor::snapshot
