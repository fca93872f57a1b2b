#include "base/uuid.h"

#include <gtest/gtest.h>

namespace torpor {
namespace {

TEST(Uuid, FormAndDifference) {
  std::string a = IdSource::Real()->NewUuid();
  EXPECT_TRUE(IsUuid(a)) << a;
  EXPECT_EQ(a[14], '4');
  EXPECT_NE(a, IdSource::Real()->NewUuid());
  EXPECT_EQ(RandomHex(32).size(), 64u);
}

TEST(Uuid, SequentialRepeats) {
  SequentialIds ids;
  EXPECT_EQ(ids.NewUuid(), "00000000-0000-4000-8000-000000000001");
  EXPECT_EQ(ids.NewUuid(), "00000000-0000-4000-8000-000000000002");
  EXPECT_TRUE(IsUuid(ids.NewUuid()));
}

TEST(Uuid, Refused) {
  for (const char* text :
       {"", "x", "00000000-0000-4000-8000-00000000000G", "00000000-0000-4000-8000-00000000000A",
        "00000000x0000-4000-8000-000000000001", "../../etc/passwd"}) {
    EXPECT_FALSE(IsUuid(text)) << text;
  }
}

}  // namespace
}  // namespace torpor
