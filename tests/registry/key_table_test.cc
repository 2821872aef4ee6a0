// SPDX-License-Identifier: Apache-2.0
#include "registry/key_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace kvr {
namespace {

// Entries are pointers that nobody follows.
const Prepared* Answer(uint64_t i) { return reinterpret_cast<const Prepared*>(16 * (i + 1)); }

BucketedKey Key(std::initializer_list<int64_t> values) {
  BucketedKey key;
  std::copy(values.begin(), values.end(), key.values.begin());
  return key;
}

TEST(KeyTable, AnEmptyOneHoldsNothing) {
  EXPECT_EQ(KeyTable().Find(Key({1})).prepared, nullptr);
  EXPECT_EQ(KeyTable(0, 2).Find(Key({0, 0})).prepared, nullptr);
}

TEST(KeyTable, APolicyWithoutAxesHasOneKey) {
  KeyTable table(1, 0);
  EXPECT_EQ(table.Find(Key({})).prepared, nullptr);
  table.Insert(Key({}), Answer(7), true);
  EXPECT_EQ(table.Find(Key({})).prepared, Answer(7));
  EXPECT_TRUE(table.Find(Key({})).missed);
}

TEST(KeyTable, InsertingAKeyAgainReplacesItsAnswer) {
  KeyTable table(1, 1);
  table.Insert(Key({5}), Answer(1), true);
  table.Insert(Key({5}), Answer(2), false);
  EXPECT_EQ(table.Find(Key({5})).prepared, Answer(2));
  EXPECT_FALSE(table.Find(Key({5})).missed);
}

TEST(KeyTable, FindsEachOfManyKeysAndNoOther) {
  std::mt19937_64 random(3);
  for (size_t parts = 1; parts <= static_cast<size_t>(kMaxKeyAxes); ++parts) {
    for (const int64_t count : {1, 2, 3, 10, 1000, 10000}) {
      KeyTable table(static_cast<size_t>(count), parts);
      const auto key = [&](int64_t i) {  // near each other in every axis, as shapes are
        BucketedKey made;
        for (size_t p = 0; p < parts; ++p) {
          made.values[p] = p + 1 < parts ? i % 10 : i / (parts > 1 ? 10 : 1);
        }
        return made;
      };
      std::vector<int64_t> order(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) order[static_cast<size_t>(i)] = i;
      std::shuffle(order.begin(), order.end(), random);
      for (int64_t i : order) table.Insert(key(i), Answer(static_cast<uint64_t>(i)), i % 3 == 0);
      for (int64_t i = 0; i < count; ++i) {
        const KeyTable::Entry found = table.Find(key(i));
        ASSERT_EQ(found.prepared, Answer(static_cast<uint64_t>(i))) << parts << " " << i;
        ASSERT_EQ(found.missed, i % 3 == 0);
      }
      for (int64_t i = count; i < count + 100; ++i) {
        if (parts > 1 && i / 10 == (count - 1) / 10 && i % 10 <= (count - 1) % 10) continue;
        ASSERT_EQ(table.Find(key(i)).prepared, nullptr) << parts << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace kvr
