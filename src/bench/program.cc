#include "bench/program.h"

#include <cstdio>

#include "glutton/glutton.pb.h"

namespace torpor::bench {
namespace {

void Corrupt(Outcome* outcome, const std::string& message) {
  outcome->status = Status(Code::kDataLoss, message);
  outcome->corrupt = true;
}

class MemoryProgram : public Program {
 public:
  MemoryProgram(const Scenario& scenario, Poster poster)
      : scenario_(scenario), glutton_(std::move(poster), VerifyOf(scenario)) {}

  bool Begin(const Record& record) override {
    if (scenario_.mem_target == 0) return true;
    if (!record("GluttonFillRAM", glutton_.Fill(scenario_.mem_target, scenario_.content), true)) {
      return false;
    }
    return !glutton_.verifies_memory() || record("GluttonVerify", glutton_.Read(-1), false);
  }
  Outcome FirstTouch() override { return glutton_.Ping("wake"); }
  bool Work(const Record& record) override {
    return WorkOnMemory(glutton_, scenario_, [&](const std::string& row, const Outcome& outcome) {
      record(row, outcome, false);
    });
  }
  const char* PingRow() const override { return "GluttonPing"; }
  Outcome Ping(int64_t number) override { return glutton_.Ping(fmt::format("ping {}", number)); }

 private:
  const Scenario& scenario_;
  Glutton glutton_;
};

class DurDirProgram : public Program {
 public:
  DurDirProgram(const Scenario& scenario, Poster poster)
      : scenario_(scenario), poster_(std::move(poster)) {}

  bool Begin(const Record& record) override {
    return record("DurDirWrite", Write(), true) && record("DurDirServeInitial", Read(), true);
  }
  Outcome FirstTouch() override { return Read(); }
  bool Work(const Record& record) override {
    // With a wake by traffic the first read was the wake.
    const bool read =
        scenario_.resume_mode == "implicit" || record("DurDirServeAfterResume", Read(), false);
    return read && record("DurDirServeWarm", Read(), false) &&
           record("DurDirOverwrite", Write(), false);
  }
  const char* PingRow() const override { return "GluttonPing"; }
  Outcome Ping(int64_t number) override {
    return Glutton(poster_, Glutton::Verify::kEcho).Ping(fmt::format("ping {}", number));
  }

 private:
  static constexpr char kKey[] = "bench";

  template <typename Request, typename Response>
  Outcome Post(const std::string& path, const Request& request, Response* response) {
    Outcome outcome;
    HttpAnswer answer = PostTo(poster_, path, request.SerializeAsString(), &outcome);
    if (answer.status == 404 && !digest_.empty()) Corrupt(&outcome, "the actor has lost its file");
    if (outcome.ok() && !response->ParseFromString(answer.body)) {
      outcome.status = Status(Code::kInternal, "the answer of " + path + " is no such message");
    }
    return outcome;
  }
  Outcome Write() {
    ::glutton::WriteDiskRequest request;
    request.set_key(kKey);
    request.set_size(static_cast<int32_t>(scenario_.durdir_file_size));
    request.set_write_mode(digest_.empty() ? ::glutton::WRITE_MODE_TRUNCATE
                                           : ::glutton::WRITE_MODE_OVERWRITE);
    ::glutton::WriteDiskResponse response;
    Outcome outcome = Post("/writedisk", request, &response);
    if (outcome.ok()) digest_ = response.sha256();
    return outcome;
  }
  Outcome Read() {
    ::glutton::ReadDiskRequest request;
    request.set_key(kKey);
    const bool digest_only = scenario_.durdir_read_mode == "digest";
    request.set_read_mode(digest_only ? ::glutton::READ_MODE_DIGEST_ONLY
                                      : ::glutton::READ_MODE_DATA);
    ::glutton::ReadDiskResponse response;
    Outcome outcome = Post("/readdisk", request, &response);
    if (!outcome.ok()) return outcome;
    if (response.sha256() != digest_) Corrupt(&outcome, "the file is not the one last written");
    const auto size = static_cast<size_t>(scenario_.durdir_file_size);
    if (outcome.ok() && !digest_only && response.data().size() != size) {
      Corrupt(&outcome, fmt::format("{} of {} bytes were read", response.data().size(), size));
    }
    return outcome;
  }

  const Scenario& scenario_;
  const Poster poster_;
  std::string digest_;  // of the last write
};

class CounterProgram : public Program {
 public:
  explicit CounterProgram(Poster poster) : poster_(std::move(poster)) {}
  bool Begin(const Record& record) override { return record("Count", Count(), true); }
  Outcome FirstTouch() override { return Count(); }
  bool Work(const Record& record) override { return record("Count", Count(), false); }
  const char* PingRow() const override { return "Count"; }
  Outcome Ping(int64_t) override { return Count(); }

 private:
  Outcome Count() {
    Outcome outcome;
    HttpAnswer answer = PostTo(poster_, "/", "", &outcome);
    // Without an answer it may have counted or not.
    if (!outcome.ok()) {
      memory_ = file_ = 0;
      return outcome;
    }
    unsigned long long memory = 0, file = 0;
    const size_t at = answer.body.find("preserved memory count: ");
    if (at == std::string::npos ||
        sscanf(answer.body.c_str() + at,
               "preserved memory count: %llu | preserved file counter: %llu", &memory,
               &file) != 2) {
      outcome.status = Status(Code::kInternal, "no counts: " + answer.body.substr(0, 200));
      return outcome;
    }
    if (memory_ != 0 && (memory != memory_ + 1 || file != file_ + 1)) {
      Corrupt(&outcome, fmt::format("the counts are {} and {} after {} and {}", memory, file,
                                    memory_, file_));
    }
    memory_ = memory;
    file_ = file;
    return outcome;
  }

  const Poster poster_;
  uint64_t memory_ = 0, file_ = 0;  // 0 = not known
};

// Does nothing between wakes: the pattern has requests of its own.
class NoProgram : public Program {
 public:
  explicit NoProgram(Poster poster) : poster_(std::move(poster)) {}
  bool Begin(const Record&) override { return true; }
  Outcome FirstTouch() override {
    Outcome outcome;
    PostTo(poster_, "/executed?client=0", "", &outcome);
    return outcome;
  }
  bool Work(const Record&) override { return true; }
  const char* PingRow() const override { return "Ping"; }
  Outcome Ping(int64_t) override { return FirstTouch(); }

 private:
  const Poster poster_;
};

}  // namespace

Glutton::Verify VerifyOf(const Scenario& scenario) {
  if (scenario.verify == "memory") return Glutton::Verify::kMemory;
  return scenario.verify == "echo" ? Glutton::Verify::kEcho : Glutton::Verify::kOff;
}

bool WorkOnMemory(Glutton& glutton, const Scenario& scenario,
                  const std::function<void(const std::string&, const Outcome&)>& record) {
  if (scenario.mem_target == 0) return true;
  auto note = [&](const std::string& row, const Outcome& outcome) {
    record(row, outcome);
    return outcome.ok();
  };
  const bool reads_all =
      scenario.mem_read == Scenario::kReadAll || scenario.mem_read == scenario.mem_target;
  if (scenario.mem_read != 0 &&
      !note("GluttonReadRAM", glutton.Read(reads_all ? -1 : scenario.mem_read))) {
    return false;
  }
  // A read of the whole has checked already.
  if (glutton.verifies_memory() && !reads_all && !note("GluttonVerify", glutton.Read(-1))) {
    return false;
  }
  if (scenario.mem_churn == 0) return true;
  if (!note("GluttonChurnRAM", glutton.Churn(scenario.mem_churn, scenario.content))) return false;
  return !glutton.verifies_memory() || note("GluttonVerify", glutton.Read(-1));
}

std::unique_ptr<Program> MakeMemoryProgram(const Scenario& scenario, Poster poster) {
  return std::make_unique<MemoryProgram>(scenario, std::move(poster));
}

std::unique_ptr<Program> MakeDurDirProgram(const Scenario& scenario, Poster poster) {
  return std::make_unique<DurDirProgram>(scenario, std::move(poster));
}

std::unique_ptr<Program> MakeCounterProgram(const Scenario&, Poster poster) {
  return std::make_unique<CounterProgram>(std::move(poster));
}

std::unique_ptr<Program> MakeProgram(const Scenario& scenario, Poster poster) {
  if (scenario.pattern == "durdir") return MakeDurDirProgram(scenario, std::move(poster));
  if (scenario.pattern == "inflight") return std::make_unique<NoProgram>(std::move(poster));
  if (ImageOf(scenario) == "counter") return MakeCounterProgram(scenario, std::move(poster));
  return MakeMemoryProgram(scenario, std::move(poster));
}

}  // namespace torpor::bench
