#pragma once
// Objects in a bucket behind the XML API of S3 or Google Cloud Storage: s3://bucket/key,
// gs://bucket/key. Thread-safe.
//
// Every body travels with its MD5, which the store checks; a Get that breaks off goes on where it
// was, as long as the object is the same. A Put or Complete whose answer was lost is repeated, and
// what it finds then tells whether the first one was done.

#include <memory>
#include <string>

#include "base/status.h"
#include "objstore/object_store.h"
#include "objstore/xml/xml_client.h"

namespace torpor::objstore {

class XmlStore : public ObjectStore {
 public:
  // What `client` needs to live is kept by `resources`. `copy_bytes_max` is for tests; 0 = the
  // store's own limit.
  XmlStore(std::unique_ptr<XmlClient> client, std::shared_ptr<void> resources,
           int64_t copy_bytes_max = 0);

  StatusOr<ObjectInfo> Head(const std::string& key) override;
  StatusOr<ObjectInfo> Get(const std::string& key, ByteRange range, const Sink& sink) override;
  Status Put(const std::string& key, std::string_view bytes,
             const PutOptions& options = {}) override;
  StatusOr<std::unique_ptr<MultipartUpload>> Begin(const std::string& key,
                                                   int64_t part_bytes) override;
  StatusOr<ListPage> List(const std::string& prefix, const std::string& token) override;
  Status Delete(const std::string& key) override;
  Status Copy(const std::string& from, const std::string& to) override;
  Status AbortUploads(const std::string& prefix, WallTime before) override;

 private:
  Status CopyInParts(const std::string& from, const std::string& to, int64_t bytes);

  const std::shared_ptr<void> resources_;  // first, so that it ends last
  const std::unique_ptr<XmlClient> client_;
  const int64_t copy_bytes_max_;
};

}  // namespace torpor::objstore
