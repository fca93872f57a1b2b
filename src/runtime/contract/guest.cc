// The guest of the contract suite: a counter on TCP port 8080 or the one of its argument. Static,
// no library of ours.
//
// One line per request on a connection, one line back:
//   next        the counter after adding one
//   out TEXT    TEXT on standard output, then "ok"
//   fill N      N MiB of memory that does not compress, then "ok"
//   sum         of the filled memory, all of which is read
//   write NAME TEXT / read NAME    a file below /tmp
//   exit CODE   ends the program

#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

namespace {

long counter = 0;
std::vector<uint64_t> filled;

std::string Answer(char* line) {
  if (strcmp(line, "next") == 0)
    return std::to_string(__atomic_add_fetch(&counter, 1, __ATOMIC_SEQ_CST));
  if (strncmp(line, "exit ", 5) == 0) _exit(atoi(line + 5));
  if (strncmp(line, "out ", 4) == 0) {
    std::string text = std::string(line + 4) + "\n";
    return write(1, text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? "ok"
                                                                                   : "failed";
  }
  if (strncmp(line, "fill ", 5) == 0) {
    filled.resize(static_cast<size_t>(atoi(line + 5)) << 17);
    uint64_t state = 88172645463325252u;
    for (uint64_t& word : filled) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      word = state;
    }
    return "ok";
  }
  if (strcmp(line, "sum") == 0) {
    uint64_t sum = 0;
    for (uint64_t word : filled) sum = sum * 31 + word;
    return std::to_string(sum);
  }
  if (strncmp(line, "write ", 6) == 0) {
    char* text = strchr(line + 6, ' ');
    if (text == nullptr) return "usage";
    *text = 0;
    FILE* file = fopen((std::string("/tmp/") + (line + 6)).c_str(), "w");
    if (file == nullptr) return "cannot open";
    fputs(text + 1, file);
    return fclose(file) == 0 ? "ok" : "failed";
  }
  if (strncmp(line, "read ", 5) == 0) {
    FILE* file = fopen((std::string("/tmp/") + (line + 5)).c_str(), "r");
    if (file == nullptr) return "missing";
    char text[256] = {};
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    return std::string(text, n);
  }
  return "unknown";
}

void Serve(int fd) {
  FILE* in = fdopen(fd, "r");
  char line[1024];
  while (fgets(line, sizeof line, in) != nullptr) {
    line[strcspn(line, "\r\n")] = 0;
    std::string answer = Answer(line) + "\n";
    if (write(fd, answer.data(), answer.size()) < 0) break;
  }
  fclose(in);
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  int one = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(argc > 1 ? atoi(argv[1]) : 8080));
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return 3;
  if (listen(listener, 64) != 0) return 4;
  for (;;) {
    int fd = accept(listener, nullptr, nullptr);
    if (fd < 0) continue;  // EINTR after a restore
    std::thread(Serve, fd).detach();
  }
}
