#pragma once

// The operations of the glutton protocol: checks a request, does it, fills the response. Knows
// nothing of HTTP. Thread-safe.

#include <chrono>
#include <cstdint>
#include <string>

#include "glutton/glutton.pb.h"
#include "workloads/glutton/cpu.h"
#include "workloads/glutton/disk.h"
#include "workloads/glutton/ram.h"
#include "workloads/glutton/status.h"

namespace torpor::workloads::glutton {

namespace pb = ::glutton;

class Service {
 public:
  // `memory_bytes` bounds what WriteRAM may allocate in all.
  Service(std::string data_dir, uint64_t memory_bytes);

  Status Open() { return disk_.Open(); }

  // `cursor` is where the next rotating write of this key begins.
  Status WriteRam(const pb::WriteRAMRequest& request, uint64_t* cursor);
  Status ReadRam(const pb::ReadRAMRequest& request, pb::ReadRAMResponse* response);
  Status WriteDisk(const pb::WriteDiskRequest& request, pb::WriteDiskResponse* response);
  Status ReadDisk(const pb::ReadDiskRequest& request, pb::ReadDiskResponse* response);
  Status BurnCpu(const pb::BurnCPURequest& request, pb::BurnCPUResponse* response);
  Status Ingest(const pb::IngestRequest& request, pb::IngestResponse* response);
  Status UseCpu(const pb::UseCPURequest& request, pb::UseCPUResponse* response);

  uint64_t RamBytes() const { return ram_.TotalBytes(); }

 private:
  Ram ram_;
  Disk disk_;
  CpuLoad load_;
};

}  // namespace torpor::workloads::glutton
