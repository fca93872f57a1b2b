// Programs against workloads that answer from memory and can lose their state.
#include "bench/program.h"

#include <gtest/gtest.h>

#include "glutton/glutton.pb.h"

namespace torpor::bench {
namespace {

HttpAnswer Ok(const std::string& body) {
  HttpAnswer answer;
  answer.status = 200;
  answer.headers["x-server-elapsed-us"] = "10";
  answer.body = body;
  return answer;
}

class Notes {
 public:
  Record record() {
    return [this](const std::string& row, const Outcome& outcome, bool) {
      rows.push_back(row);
      corrupt |= outcome.corrupt;
      return outcome.ok();
    };
  }
  std::vector<std::string> rows;
  bool corrupt = false;
};

struct FakeCounter {
  int memory = 0, file = 0;
  StatusOr<HttpAnswer> Post(const std::string&, const std::string&) {
    return Ok(fmt::format("hello from: x | preserved memory count: {} | preserved file counter: {}",
                          ++memory, ++file));
  }
};

TEST(ProgramTest, CounterDemandsTheNextNumber) {
  Scenario scenario;
  scenario.pattern = "counter_burst";
  EXPECT_EQ(ImageOf(scenario), "counter");
  FakeCounter counter;
  auto program = MakeProgram(scenario, [&](const std::string& path, const std::string& body) {
    return counter.Post(path, body);
  });
  Notes notes;
  EXPECT_TRUE(program->Begin(notes.record()));
  EXPECT_TRUE(program->Work(notes.record()));
  EXPECT_TRUE(program->FirstTouch().ok());
  EXPECT_FALSE(notes.corrupt);
  counter.memory = 1;  // an older state
  EXPECT_FALSE(program->Work(notes.record()));
  EXPECT_TRUE(notes.corrupt);
}

struct FakeDisk {
  std::string digest, data;
  int writes = 0;
  StatusOr<HttpAnswer> Post(const std::string& path, const std::string& body) {
    if (path == "/writedisk") {
      ::glutton::WriteDiskRequest request;
      request.ParseFromString(body);
      EXPECT_EQ(request.write_mode(),
                writes == 0 ? ::glutton::WRITE_MODE_TRUNCATE : ::glutton::WRITE_MODE_OVERWRITE);
      data.assign(static_cast<size_t>(request.size()), 'd');
      digest = fmt::format("digest {}", ++writes);
      ::glutton::WriteDiskResponse response;
      response.set_sha256(digest);
      return Ok(response.SerializeAsString());
    }
    ::glutton::ReadDiskRequest request;
    request.ParseFromString(body);
    ::glutton::ReadDiskResponse response;
    response.set_sha256(digest);
    if (request.read_mode() == ::glutton::READ_MODE_DATA) response.set_data(data);
    return Ok(response.SerializeAsString());
  }
};

class DurDirTest : public ::testing::Test {
 protected:
  DurDirTest() {
    scenario_.pattern = "durdir";
    scenario_.durdir_file_size = 100;
  }
  std::unique_ptr<Program> Make() {
    return MakeProgram(scenario_, [this](const std::string& path, const std::string& body) {
      return disk_.Post(path, body);
    });
  }
  Scenario scenario_;
  FakeDisk disk_;
  Notes notes_;
};

TEST_F(DurDirTest, ReadsTwiceAndRewrites) {
  auto program = Make();
  EXPECT_TRUE(program->Begin(notes_.record()));
  EXPECT_TRUE(program->Work(notes_.record()));
  EXPECT_EQ(notes_.rows,
            (std::vector<std::string>{"DurDirWrite", "DurDirServeInitial", "DurDirServeAfterResume",
                                      "DurDirServeWarm", "DurDirOverwrite"}));
  EXPECT_FALSE(notes_.corrupt);
}

TEST_F(DurDirTest, WakeByTrafficIsTheFirstRead) {
  scenario_.resume_mode = "implicit";
  scenario_.durdir_read_mode = "digest";
  auto program = Make();
  EXPECT_TRUE(program->Begin(notes_.record()));
  EXPECT_TRUE(program->FirstTouch().ok());
  notes_.rows.clear();
  EXPECT_TRUE(program->Work(notes_.record()));
  EXPECT_EQ(notes_.rows, (std::vector<std::string>{"DurDirServeWarm", "DurDirOverwrite"}));
}

TEST_F(DurDirTest, AnotherFileIsACorruption) {
  auto program = Make();
  EXPECT_TRUE(program->Begin(notes_.record()));
  disk_.digest = "another";
  EXPECT_FALSE(program->Work(notes_.record()));
  EXPECT_TRUE(notes_.corrupt);
}

TEST_F(DurDirTest, ShorterFileIsACorruption) {
  auto program = Make();
  EXPECT_TRUE(program->Begin(notes_.record()));
  disk_.data.resize(50);
  EXPECT_TRUE(program->FirstTouch().corrupt);
}

}  // namespace
}  // namespace torpor::bench
