#include "bench/nginx.h"

#include <signal.h>

#include <filesystem>
#include <fstream>

#include "bench/http_client.h"
#include "bench/stack.h"

namespace torpor::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kConfig[] = R"(daemon off;
master_process off;
user root;
pid {dir}/nginx.pid;
error_log {dir}/nginx.log;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  keepalive_requests 100000000;
  client_body_temp_path {dir}/body;
  proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi;
  scgi_temp_path {dir}/scgi;
  upstream guest {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 100000000; }}
  server {{
    listen {listen};
    location / {{
      proxy_pass http://guest;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
    }}
  }}
}}
)";

}  // namespace

StatusOr<std::unique_ptr<Nginx>> Nginx::Start(const std::string& dir) {
  std::unique_ptr<Nginx> nginx(new Nginx);
  ASSIGN_OR_RETURN(nginx->upstream_,
                   runtime::HttpListener::Start("", 0, [](const std::string&) { return "1\n"; }));
  ASSIGN_OR_RETURN(std::vector<int> ports, FreePorts(1));
  nginx->address_ = fmt::format("127.0.0.1:{}", ports[0]);
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  const std::string config = dir + "/nginx.conf";
  std::ofstream(config) << fmt::format(kConfig, fmt::arg("dir", dir),
                                       fmt::arg("upstream", nginx->upstream_->port()),
                                       fmt::arg("listen", nginx->address_));
  auto process = os::Spawn({"nginx", "-p", dir, "-c", config});
  if (process.status().code() == Code::kNotFound) {
    return Error(
        Code::kNotFound, "FIELD_INVALID",
        "no nginx in PATH; install the Debian package nginx-light, or compare with nothing: "
        "--nginx false");
  }
  RETURN_IF_ERROR(process.status());
  nginx->process_ = std::move(*process);
  const MonotonicTime deadline = Clock::Real()->Now() + seconds(10);
  HttpConnection connection(DialTcp(nginx->address_));
  for (;;) {
    auto answer = connection.Exchange({"GET", "/", "nginx", "", ""}, deadline);
    if (answer.ok() && answer->status == 200) return nginx;
    if (Clock::Real()->Now() >= deadline) {
      return Annotate(answer.status(), "nginx does not answer; see " + dir + "/nginx.log");
    }
    std::this_thread::sleep_for(milliseconds(20));
  }
}

Nginx::~Nginx() {
  if (process_.pid() <= 0) return;
  (void)process_.Signal(SIGKILL);
  (void)process_.Wait(Clock::Real()->Now() + seconds(5));
}

}  // namespace torpor::bench
