#include "objstore/xml/answers.h"

#include "base/testing/matchers.h"
#include "objstore/http/http_client.h"

namespace torpor::objstore {
namespace {

TEST(AnswersTest, Errors) {
  const ErrorAnswer error = ParseError(
      "<?xml version=\"1.0\"?>\n<Error><Code>AuthorizationHeaderMalformed</Code>"
      "<Message>m</Message><Region>eu-west-1</Region></Error>");
  EXPECT_EQ(error.code, "AuthorizationHeaderMalformed");
  EXPECT_EQ(error.region, "eu-west-1");
  for (const char* text :
       {"", "no xml", "<html>", "<Error>", "<Error/>", "<Other><Code>A</Code></Other>",
        "<Error><Code>a b</Code></Error>", "<Error><Code>a\nb</Code></Error>"}) {
    EXPECT_EQ(ParseError(text).code, "") << text;
  }
}

TEST(AnswersTest, Lists) {
  ASSERT_OK_AND_ASSIGN(
      ListAnswer list,
      ParseList("<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
                "<IsTruncated>true</IsTruncated>"
                "<Contents><Key>a&amp;b</Key><Size>9007199254740993</Size></Contents>"
                "<Contents><Size>0</Size><Key>c</Key></Contents></ListBucketResult>"));
  EXPECT_TRUE(list.truncated);
  ASSERT_EQ(list.objects.size(), 2u);
  EXPECT_EQ(list.objects[0].key, "a&b");
  EXPECT_EQ(list.objects[0].bytes, 9007199254740993);
  for (const std::string& text :
       {std::string(), std::string("<ListBucketResult>"), std::string("<Error/>"),
        std::string("<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>"),
        std::string("<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>"),
        std::string("<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents>"
                    "</ListBucketResult>"),
        std::string("<ListBucketResult><Contents><Key>a</Key><Size>99999999999999999999</Size>"
                    "</Contents></ListBucketResult>"),
        "<ListBucketResult>" + std::string(kHttpBodyBytesMax, ' ') + "</ListBucketResult>"}) {
    EXPECT_THAT(ParseList(text), HasCode(Code::kInvalidArgument)) << text.substr(0, 100);
  }
}

// A document that would grow to gigabytes in a parser that knows entities.
TEST(AnswersTest, EntitiesAreNotExpanded) {
  ASSERT_OK_AND_ASSIGN(
      ListAnswer list,
      ParseList("<!DOCTYPE x [<!ENTITY a \"aaaaaaaa\"><!ENTITY b \"&a;&a;&a;\">]>"
                "<ListBucketResult><Contents><Key>&b;</Key><Size>1</Size></Contents>"
                "</ListBucketResult>"));
  EXPECT_EQ(list.objects[0].key, "&b;");
}

TEST(AnswersTest, DepthIsNoDanger) {
  std::string deep;
  while (deep.size() + 3 < kHttpBodyBytesMax) deep += "<a>";
  EXPECT_FALSE(ParseList(deep).ok());
}

TEST(AnswersTest, Uploads) {
  ASSERT_OK_AND_ASSIGN(std::string id,
                       ParseUploadId("<InitiateMultipartUploadResult><UploadId>"
                                     "a/b</UploadId></InitiateMultipartUploadResult>"));
  EXPECT_EQ(id, "a/b");
  EXPECT_FALSE(ParseUploadId("<InitiateMultipartUploadResult/>").ok());
  ASSERT_OK_AND_ASSIGN(auto uploads,
                       ParseUploads("<ListMultipartUploadsResult><Upload><Key>k</Key><UploadId>u"
                                    "</UploadId><Initiated>2026-01-01T00:00:00.000Z</Initiated>"
                                    "</Upload></ListMultipartUploadsResult>"));
  ASSERT_EQ(uploads.size(), 1u);
  EXPECT_EQ(uploads[0].upload_id, "u");
  EXPECT_FALSE(
      ParseUploads("<ListMultipartUploadsResult><Upload/></ListMultipartUploadsResult>").ok());
  EXPECT_EQ(CompleteRequest({{1, "\"a\""}, {2, "b"}}),
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"a\"</ETag></Part>"
            "<Part><PartNumber>2</PartNumber><ETag>b</ETag></Part></CompleteMultipartUpload>");
  EXPECT_TRUE(IsEtag("\"5d41402abc4b2a76b9719d911017c592\""));
  for (const char* text : {"", "a<b", "a&b", "a b", "a\n"}) EXPECT_FALSE(IsEtag(text)) << text;
}

}  // namespace
}  // namespace torpor::objstore
