#pragma once

// One client connection of Server: reads requests, hands them to the App one at a time and writes
// the answers in order. Internal to the http folder. Only for the server's thread.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "workloads/base/io.h"
#include "workloads/http/message.h"
#include "workloads/http/parser.h"
#include "workloads/http/server.h"

namespace torpor::workloads::http {

class Connection {
 public:
  Connection(Server* server, App* app, uint64_t id, UniqueFd fd);

  void OnEvents(uint32_t events);

  // Whether the request with this serial number is the one being answered.
  bool Answering(uint64_t serial) const;

  void Send(Response response);
  void Begin(const Response& head, std::optional<uint64_t> length);
  void Write(std::string_view data);
  void End();
  void Upgrade(const Headers& headers, std::unique_ptr<Upgraded> upgraded);

  int fd() const { return fd_.get(); }
  uint64_t id() const { return id_; }
  uint32_t interest() const { return interest_; }

 private:
  enum class Phase {
    kHead,      // waiting for a request
    kBody,      // reading a body, which may be answered already
    kAnswer,    // the body is complete, the answer is not
    kUpgraded,  // bytes belong to upgraded_
    kDraining,  // everything is sent; waiting for the peer to close
    kGone,
  };

  void Advance();
  bool StepHead();
  bool StepBody();
  bool StepUpgraded();
  bool Read();
  bool Flush();
  void UpdateInterest();
  void OnHeadParsed();
  void FinishBody();
  void FinishExchange();
  void Refuse(int status);
  void Queue(std::string data);
  void QueueHead(const Response& response, std::optional<uint64_t> length);
  void CloseAfterFlush();
  void Gone();

  Server* const server_;
  App* const app_;
  const uint64_t id_;
  UniqueFd fd_;

  Phase phase_ = Phase::kHead;
  bool advancing_ = false;  // guards against recursion through the App
  bool peer_closed_ = false;
  bool close_when_sent_ = false;
  uint32_t interest_ = 0;

  std::string in_;
  size_t in_used_ = 0;  // bytes at the start of in_ that have been consumed
  std::deque<std::string> out_;
  size_t out_used_ = 0;  // bytes of out_.front() that have been sent
  size_t out_bytes_ = 0;

  // The exchange in progress.
  uint64_t serial_ = 0;
  Request request_;
  std::optional<BodyDecoder> decoder_;
  std::unique_ptr<BodySink> sink_;
  bool answer_started_ = false;
  bool answer_done_ = true;
  bool answer_chunked_ = false;
  bool answer_without_body_ = false;
  std::unique_ptr<Upgraded> upgraded_;
};

}  // namespace torpor::workloads::http
