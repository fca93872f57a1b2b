#pragma once
// An object that is written as a stream, along the path of its plan.
//
// Nothing is visible before Finish. Destruction without it waits for the parts that are on their
// way and aborts the upload, so nothing is left. Belongs to one thread; parts are sent on others.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/sync.h"
#include "base/thread_pool.h"
#include "objstore/object_store.h"
#include "snapshot/save/plan.h"
#include "snapshot/transfer/buffers.h"

namespace torpor::snapshot {

// What a writer works with; all of it outlives the writer.
struct WriterTools {
  BufferPool* buffers = nullptr;
  ThreadPool* senders = nullptr;     // null: every part is sent before Append returns
  ByteBudget::Hold* hold = nullptr;  // null: never more than one part
};

class ObjectWriter {
 public:
  ObjectWriter(objstore::ObjectStore* store, std::string key, const UploadPlan& plan,
               const WriterTools& tools)
      : store_(store), key_(std::move(key)), plan_(plan), tools_(tools) {}
  ~ObjectWriter();
  ObjectWriter(const ObjectWriter&) = delete;
  ObjectWriter& operator=(const ObjectWriter&) = delete;

  // INTERNAL when the bytes do not fit the plan; those of the store.
  Status Append(std::string_view bytes);
  // For a plan of a single Put: room for `bytes`, of which Filled says how many were written.
  StatusOr<char*> Space(int64_t bytes);
  void Filled(int64_t bytes);
  // Gives back buffers that nothing needs just now.
  void GiveBackSurplus() EXCLUDES(mu_);
  // Commits the object.
  Status Finish();

  int64_t bytes() const { return bytes_; }  // appended so far

 private:
  Status CheckFits(int64_t bytes) const;
  Status TakePart() EXCLUDES(mu_);
  Status SendPart();
  Status WaitForSends(int at_most) EXCLUDES(mu_);
  Status TakeFailure() REQUIRES(mu_);

  objstore::ObjectStore* const store_;
  const std::string key_;
  const UploadPlan plan_;
  const WriterTools tools_;
  int64_t bytes_ = 0;
  Buffer part_;  // being filled
  int64_t filled_ = 0;
  int parts_sent_ = 0;
  int buffers_ = 0;  // that exist, wherever they are
  std::unique_ptr<objstore::MultipartUpload> upload_;

  Mutex mu_;
  CondVar sent_;
  int sending_ GUARDED_BY(mu_) = 0;
  std::vector<Buffer> free_ GUARDED_BY(mu_);
  Status failed_ GUARDED_BY(mu_);  // the first error of a part
};

}  // namespace torpor::snapshot
