// How long uploads take on a store that answers after a fixed round trip, in round trips, and how
// much of the memory budget they take.
//
//   upload_bench [DIRECTORY] [REPEATS]     (default: /dev/shm, 5; needs 1.5 GiB there)
//
// small_80: 80 files of 64 KiB, random content. actors_4: four snapshots at once, each with a file
// of 256 MiB of heap-like content and six of 64 KiB; beside it, in turn, `zstd -2 -T2` over the
// same bytes. The first round warms up and is not counted; medians.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "heap_content.h"
#include "objstore/memory/memory_store.h"
#include "snapshot/save/save.h"
#include "snapshot/testing/sample.h"

namespace torpor::snapshot {
namespace {

using Seconds = std::chrono::duration<double>;
constexpr std::chrono::milliseconds kRoundTrip(50);
constexpr int kSmallFiles = 80;
constexpr int64_t kSmallBytes = 64 << 10;
constexpr int kActors = 4;
constexpr int64_t kLargeBytes = int64_t{256} << 20;

// Every request takes one round trip. Keeps what is small, forgets parts.
class FarStore : public objstore::MemoryStore {
 public:
  // When the manifest was put; the files were all there then.
  std::atomic<std::chrono::steady_clock::time_point> manifest_put;

  StatusOr<objstore::ObjectInfo> Head(const std::string& key) override {
    std::this_thread::sleep_for(kRoundTrip);
    return MemoryStore::Head(key);
  }
  StatusOr<objstore::ObjectInfo> Get(const std::string& key, objstore::ByteRange range,
                                     const objstore::Sink& sink) override {
    std::this_thread::sleep_for(kRoundTrip);
    return MemoryStore::Get(key, range, sink);
  }
  Status Put(const std::string& key, std::string_view bytes,
             const objstore::PutOptions& options) override {
    if (key.ends_with(kManifestName)) manifest_put = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(kRoundTrip);
    return MemoryStore::Put(key, bytes, options);
  }
  StatusOr<std::unique_ptr<objstore::MultipartUpload>> Begin(const std::string&, int64_t) override {
    class Upload : public objstore::MultipartUpload {
     public:
      Status PutPart(int, std::string_view) override {
        std::this_thread::sleep_for(kRoundTrip);
        return OkStatus();
      }
      Status Complete() override {
        std::this_thread::sleep_for(kRoundTrip);
        return OkStatus();
      }
      void Abort() override {}
    };
    std::this_thread::sleep_for(kRoundTrip);
    return std::unique_ptr<objstore::MultipartUpload>(std::make_unique<Upload>());
  }
};

class Bench {
 public:
  explicit Bench(const std::string& dir) : dir_(dir + "/upload_bench") {
    std::filesystem::create_directories(dir_);
    ResourceOptions options;
    options.threads_max = 2;
    resources_ = std::move(Resources::Create(options, Clock::Real())).value();
  }
  ~Bench() { std::filesystem::remove_all(dir_); }

  void Run(int repeats) {
    MakeFiles();
    Small(repeats);
    Actors(repeats);
  }

 private:
  void MakeFiles() {
    HeapContent content;
    std::string piece(1 << 20, '\0');
    for (int actor = 0; actor < kActors; ++actor) {
      std::ofstream out(dir_ + "/large-" + std::to_string(actor), std::ios::binary);
      for (int64_t at = 0; at < kLargeBytes; at += static_cast<int64_t>(piece.size())) {
        content.Fill(&piece);
        out << piece;
      }
    }
    std::ifstream random("/dev/urandom", std::ios::binary);
    piece.resize(kSmallBytes);
    for (int i = 0; i < kSmallFiles; ++i) {
      random.read(piece.data(), kSmallBytes);
      std::ofstream(dir_ + "/small-" + std::to_string(i), std::ios::binary) << piece;
    }
  }

  void Save(FarStore* store, const std::string& prefix, const Manifest& manifest) {
    Transfer transfer(Clock::Real(), Clock::Real()->Now() + std::chrono::hours(1));
    const os::DirFd dir = std::move(os::DirFd::OpenPath(dir_)).value();
    SaveArgs args;
    args.source = &dir;
    args.manifest = manifest;
    args.store = store;
    args.prefix = prefix;
    args.resources = resources_.get();
    args.transfer = &transfer;
    auto saved = SaveSnapshot(std::move(args));
    if (!saved.ok()) fprintf(stderr, "%s\n", saved.status().ToString().c_str());
    CHECK(saved.ok());
  }

  static double Median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }

  void Small(int repeats) {
    Manifest manifest = SampleManifest();
    for (int i = 0; i < kSmallFiles; ++i) {
      manifest.files.push_back(SampleFile("small-" + std::to_string(i), kSmallBytes));
    }
    std::vector<double> files;
    std::vector<double> all;
    for (int i = 0; i <= repeats; ++i) {
      FarStore store;
      const auto begin = std::chrono::steady_clock::now();
      Save(&store, "snap", manifest);
      const auto end = std::chrono::steady_clock::now();
      if (i == 0) continue;
      files.push_back(Seconds(store.manifest_put.load() - begin) / kRoundTrip);
      all.push_back(Seconds(end - begin) / kRoundTrip);
    }
    printf("small_80: files %.2f round trips, with the manifest put and read back %.2f   n=%d\n",
           Median(files), Median(all), repeats);
  }

  void Actors(int repeats) {
    std::vector<double> ours;
    std::vector<double> zstd;
    std::string command = "cat";
    for (int i = 0; i < kActors; ++i) command += " " + dir_ + "/large-" + std::to_string(i);
    command += " | zstd -q -2 -T2 -c > /dev/null";
    for (int i = 0; i <= repeats; ++i) {
      FarStore store;
      auto begin = std::chrono::steady_clock::now();
      std::vector<std::thread> threads;
      for (int actor = 0; actor < kActors; ++actor) {
        threads.emplace_back([this, &store, actor] {
          Manifest manifest = SampleManifest();
          manifest.files.push_back(SampleFile("large-" + std::to_string(actor), kLargeBytes));
          for (int k = 0; k < 6; ++k) {
            manifest.files.push_back(
                SampleFile("small-" + std::to_string(6 * actor + k), kSmallBytes));
          }
          Save(&store, "snap-" + std::to_string(actor), manifest);
        });
      }
      for (std::thread& thread : threads) thread.join();
      const double mine = Seconds(std::chrono::steady_clock::now() - begin).count();
      begin = std::chrono::steady_clock::now();
      CHECK(system(command.c_str()) == 0);
      const double theirs = Seconds(std::chrono::steady_clock::now() - begin).count();
      if (i == 0) continue;
      ours.push_back(mine);
      zstd.push_back(theirs);
    }
    const double bound = 4 * Seconds(kRoundTrip).count() + 1.1 * Median(zstd);
    printf("actors_4: %.3f s, zstd %.3f s; of 4 round trips + 1.1 x zstd: %.2f   n=%d\n",
           Median(ours), Median(zstd), Median(ours) / bound, repeats);
  }

  const std::string dir_;
  std::unique_ptr<Resources> resources_;
};

}  // namespace
}  // namespace torpor::snapshot

int main(int argc, char** argv) {
  torpor::snapshot::Bench bench(argc > 1 ? argv[1] : "/dev/shm");
  bench.Run(argc > 2 ? atoi(argv[2]) : 5);
}
