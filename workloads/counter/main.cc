#include <cstdio>

#include "workloads/base/flags.h"
#include "workloads/base/io.h"
#include "workloads/counter/counter.h"
#include "workloads/http/server.h"
#include "workloads/http/stop_signals.h"

int main(int argc, char** argv) {
  using namespace torpor::workloads;
  counter::Options options;
  Flags flags;
  flags.Add("host", "", "IPv4 address to listen on; empty is every address");
  flags.Add("port", "80", "port to listen on; 0 is any");
  flags.Add("home-dir", options.home_dir, "directory of the file counter a.txt");
  flags.Add("random-file", options.random_file, "file of 1 MiB that is written before /readyz");
  flags.Add("system-info-dir", options.system_info_dir, "holds the files name and generation");
  flags.Add("ready-delay-ms", "0", "wait before the random file is written");
  flags.AddBool("help", "print the flags");
  std::string error = flags.Parse(argc, argv);
  if (error.empty() && flags.Set("help")) {
    std::printf("counter: counts requests in memory and in a file\n%s", flags.Usage().c_str());
    return 0;
  }
  int64_t port = 0;
  if (error.empty() && !flags.Integer("port", 0, 65535, &port)) error = "bad --port";
  if (error.empty() && !flags.Integer("ready-delay-ms", 0, 3'600'000, &options.ready_delay_ms)) {
    error = "bad --ready-delay-ms";
  }
  options.home_dir = flags.Text("home-dir");
  options.random_file = flags.Text("random-file");
  options.system_info_dir = flags.Text("system-info-dir");

  http::Server server;
  http::StopOnSignals(&server);
  counter::Counter counter(&server, options);
  std::string bound;
  if (error.empty()) {
    error = server.Listen(flags.Text("host"), static_cast<uint16_t>(port), &counter, &bound);
  }
  if (!error.empty()) {
    std::fprintf(stderr, "counter: %s\n%s", error.c_str(), flags.Usage().c_str());
    return 2;
  }
  LogLine("counter: listening on " + bound);
  counter.Start();
  server.Run();
  return 0;
}
