#include "router/h1/websocket.h"

#include <gtest/gtest.h>

namespace torpor::router {
namespace {

std::string Frame(int opcode, size_t payload, bool masked) {
  std::string out(1, static_cast<char>(0x80 | opcode));
  char mask = masked ? static_cast<char>(0x80) : 0;
  if (payload < 126) {
    out.push_back(static_cast<char>(mask | static_cast<char>(payload)));
  } else if (payload < 65536) {
    out.push_back(static_cast<char>(mask | 126));
    out.push_back(static_cast<char>(payload >> 8));
    out.push_back(static_cast<char>(payload & 0xff));
  } else {
    out.push_back(static_cast<char>(mask | 127));
    for (int shift = 56; shift >= 0; shift -= 8) {
      out.push_back(static_cast<char>(static_cast<uint64_t>(payload) >> shift));
    }
  }
  if (masked) out += "mask";
  // Bytes that would look like a frame to whoever loses count.
  for (size_t i = 0; i < payload; ++i) out.push_back(static_cast<char>(0x82));
  return out;
}

bool PassAll(FrameWatcher* watcher, const std::string& bytes, size_t piece) {
  bool carried = false;
  for (size_t i = 0; i < bytes.size(); i += piece) {
    carried |= watcher->Pass(bytes.data() + i, std::min(piece, bytes.size() - i));
  }
  return carried;
}

TEST(FrameWatcherTest, KnowsDataFromControlInPiecesOfEverySize) {
  for (size_t piece : {1u, 2u, 3u, 7u, 1000u, 100'000u}) {
    for (bool masked : {false, true}) {
      for (size_t payload : {0u, 1u, 125u, 126u, 127u, 65535u, 65536u, 70'000u}) {
        for (int opcode : {0, 1, 2}) {
          FrameWatcher watcher;
          EXPECT_TRUE(PassAll(&watcher, Frame(opcode, payload, masked), piece));
          EXPECT_TRUE(watcher.at_boundary()) << payload << " in " << piece;
        }
      }
      for (int opcode : {9, 10}) {
        FrameWatcher watcher;
        EXPECT_FALSE(PassAll(&watcher, Frame(opcode, 5, masked), piece)) << opcode;
        EXPECT_TRUE(watcher.at_boundary());
        EXPECT_FALSE(watcher.closed());
        EXPECT_TRUE(PassAll(&watcher, Frame(1, 5, masked), piece)) << "the next one";
      }
    }
  }
}

TEST(FrameWatcherTest, TheMiddleOfAFrameIsNoBoundary) {
  std::string frame = Frame(2, 300, true);
  FrameWatcher watcher;
  EXPECT_TRUE(watcher.at_boundary());
  for (size_t i = 0; i + 1 < frame.size(); ++i) {
    watcher.Pass(frame.data() + i, 1);
    EXPECT_FALSE(watcher.at_boundary()) << i;
  }
  watcher.Pass(frame.data() + frame.size() - 1, 1);
  EXPECT_TRUE(watcher.at_boundary());
}

TEST(FrameWatcherTest, CloseFrames) {
  std::string frame = CloseFrame(1012, "restart");
  FrameWatcher watcher;
  EXPECT_FALSE(watcher.Pass(frame.data(), frame.size()));
  EXPECT_TRUE(watcher.closed());
  EXPECT_TRUE(watcher.at_boundary());
  EXPECT_EQ(frame, std::string("\x88\x09\x03\xf4") + "restart");
  EXPECT_EQ(CloseFrame(1001, std::string(200, 'x')).size(), 127u);
}

}  // namespace
}  // namespace torpor::router
