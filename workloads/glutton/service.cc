#include "workloads/glutton/service.h"

#include <algorithm>
#include <utility>

#include "workloads/base/digest.h"
#include "workloads/glutton/quantity.h"

namespace torpor::workloads::glutton {
namespace {

constexpr int64_t kMaxBurnMs = 24LL * 3600 * 1000;
constexpr int32_t kMaxCycleMs = 3'600'000;
constexpr int32_t kMaxLoadThreads = 1024;
constexpr int32_t kMaxFiles = 1'000'000;
constexpr int32_t kDefaultCycleMs = 100;

Status CheckDiskKey(const std::string& key) {
  if (IsDiskKey(key)) return Status();
  return Invalid("key must match ^[a-zA-Z0-9_-]+$");
}

bool RamModeOf(int mode, RamMode* ram_mode) {
  switch (mode) {
    case pb::WRITE_MODE_TRUNCATE:
      *ram_mode = RamMode::kTruncate;
      return true;
    case pb::WRITE_MODE_OVERWRITE:
      *ram_mode = RamMode::kOverwrite;
      return true;
    case pb::WRITE_MODE_OVERWRITE_ROTATE:
      *ram_mode = RamMode::kRotate;
      return true;
    default:
      return false;
  }
}

}  // namespace

Service::Service(std::string data_dir, uint64_t memory_bytes)
    : ram_(memory_bytes), disk_(std::move(data_dir)) {}

Status Service::WriteRam(const pb::WriteRAMRequest& request, uint64_t* cursor) {
  if (request.key().empty()) return Invalid("key is empty");
  const std::optional<int64_t> size = ParseQuantity(request.size());
  if (!size) return Invalid("size '" + request.size() + "' is no quantity");
  RamMode mode;
  if (!RamModeOf(request.write_mode(), &mode)) return Invalid("unknown write_mode");
  FillKind kind = FillKind::kRandom;
  switch (static_cast<int>(request.content())) {
    case 0:
      break;
    case 1:
      kind = FillKind::kHeap;
      break;
    case 2:
      kind = FillKind::kZero40;
      break;
    default:
      return Invalid("unknown content");
  }
  return ram_.Write(request.key(), static_cast<uint64_t>(*size), mode, kind, cursor);
}

Status Service::ReadRam(const pb::ReadRAMRequest& request, pb::ReadRAMResponse* response) {
  if (request.key().empty()) return Invalid("key is empty");
  std::optional<uint64_t> size;
  if (!request.size().empty()) {
    const std::optional<int64_t> parsed = ParseQuantity(request.size());
    if (!parsed) return Invalid("size '" + request.size() + "' is no quantity");
    size = static_cast<uint64_t>(*parsed);
  }
  uint64_t bytes_read = 0;
  uint32_t checksum = 0;
  const Status status = ram_.Read(request.key(), size, &bytes_read, &checksum);
  response->set_size(static_cast<int64_t>(bytes_read));
  response->set_checksum(checksum);
  return status;
}

Status Service::WriteDisk(const pb::WriteDiskRequest& request, pb::WriteDiskResponse* response) {
  if (Status status = CheckDiskKey(request.key()); !status.ok()) return status;
  if (request.size() < 0) return Invalid("size is negative");
  if (request.file_count() < 0 || request.file_count() > kMaxFiles) {
    return Invalid("file_count must be 0.." + std::to_string(kMaxFiles));
  }
  RamMode mode;
  if (!RamModeOf(request.write_mode(), &mode)) return Invalid("unknown write_mode");
  if (mode == RamMode::kRotate) return Invalid("WRITE_MODE_OVERWRITE_ROTATE is for memory only");
  DiskResult result;
  const Status status = disk_.Write(request.key(), static_cast<uint64_t>(request.size()),
                                    static_cast<uint32_t>(request.file_count()),
                                    mode == RamMode::kOverwrite, &result);
  response->set_size(static_cast<int64_t>(result.size));
  response->set_sha256(result.sha256.data(), result.sha256.size());
  return status;
}

Status Service::ReadDisk(const pb::ReadDiskRequest& request, pb::ReadDiskResponse* response) {
  if (Status status = CheckDiskKey(request.key()); !status.ok()) return status;
  const int mode = request.read_mode();
  if (mode != pb::READ_MODE_DATA && mode != pb::READ_MODE_DIGEST_ONLY) {
    return Invalid("unknown read_mode");
  }
  DiskResult result;
  std::string* data = mode == pb::READ_MODE_DATA ? response->mutable_data() : nullptr;
  const Status status = disk_.Read(request.key(), &result, data);
  response->set_size(static_cast<int64_t>(result.size));
  response->set_sha256(result.sha256.data(), result.sha256.size());
  return status;
}

Status Service::BurnCpu(const pb::BurnCPURequest& request, pb::BurnCPUResponse* response) {
  if (request.duration_ms() < 0 || request.duration_ms() > kMaxBurnMs) {
    return Invalid("duration_ms must be 0.." + std::to_string(kMaxBurnMs));
  }
  const int threads = std::clamp(request.parallelism(), 1, 4 * AvailableCores());
  response->set_iterations(
      glutton::BurnCpu(std::chrono::milliseconds(request.duration_ms()), threads));
  return Status();
}

Status Service::Ingest(const pb::IngestRequest& request, pb::IngestResponse* response) {
  if (Status status = CheckDiskKey(request.key()); !status.ok()) return status;
  uint64_t size = 0;
  const Status status = disk_.Ingest(request.key(), request.payload(), request.append(), &size);
  // The digest is of the payload, so that the sender can check the way here.
  const Sha256::Digest digest = Sha256::Of(request.payload());
  response->set_size(static_cast<int64_t>(size));
  response->set_sha256(digest.data(), digest.size());
  return status;
}

Status Service::UseCpu(const pb::UseCPURequest& request, pb::UseCPUResponse* response) {
  const bool cap = !request.has_cap_at_gomaxprocs() || request.cap_at_gomaxprocs();
  const int32_t threads =
      cap ? std::min(request.num_cores(), AvailableCores()) : request.num_cores();
  if (threads < 0 || threads > kMaxLoadThreads) {
    return Invalid("num_cores must be 0.." + std::to_string(kMaxLoadThreads));
  }
  // Written so that not-a-number is refused as well.
  if (!(request.duty_cycle() >= 0 && request.duty_cycle() <= 1)) {
    return Invalid("duty_cycle must be 0..1");
  }
  if (request.cycle_length_ms() < 0 || request.cycle_length_ms() > kMaxCycleMs) {
    return Invalid("cycle_length_ms must be 0.." + std::to_string(kMaxCycleMs));
  }
  const int32_t cycle =
      request.cycle_length_ms() == 0 ? kDefaultCycleMs : request.cycle_length_ms();
  load_.Replace(threads, request.duty_cycle(), std::chrono::milliseconds(cycle));
  response->set_num_cores(threads);
  return Status();
}

}  // namespace torpor::workloads::glutton
