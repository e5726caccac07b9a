#include "coordinator/core/data_agreement.h"

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

DataSeen Beginning(uint64_t with) { return {ElementDigest{with, 0, 0}, std::nullopt}; }
DataSeen Size(int64_t elements) { return {std::nullopt, elements}; }

TEST(DataAgreementTest, TheLastBitOfFloatsIsNoDifference) {
  EXPECT_FALSE(Differ({7, 100.0, 1000}, {7, 100.0, 1000}));
  EXPECT_FALSE(Differ({7, 100.0, 1000}, {7, 100.0001, 1000.0001}));
  EXPECT_TRUE(Differ({7, 100.0, 1000}, {7, 101.0, 1000}));
  EXPECT_TRUE(Differ({7, 100.0, 1000}, {8, 100.0, 1000}));
  EXPECT_TRUE(Differ({7, 1, 1}, {7, 0, 0}));
}

TEST(DataAgreementTest, WhereAllFindTheSameNobodyIsOdd) {
  DataAgreement agreement;
  EXPECT_FALSE(agreement.elements().has_value());
  for (int worker = 0; worker < 3; ++worker) agreement.Note(worker, {ElementDigest{1, 0, 0}, 58});
  EXPECT_THAT(agreement.odd(), IsEmpty());
  EXPECT_FALSE(agreement.tied());
  EXPECT_EQ(agreement.elements(), 58);
}

TEST(DataAgreementTest, TheOddOneIsLeftOutWheneverItIsHeard) {
  for (int odd = 0; odd < 3; ++odd) {
    DataAgreement agreement;
    for (int worker = 0; worker < 3; ++worker)
      agreement.Note(worker, Size(worker == odd ? 56 : 58));
    EXPECT_THAT(agreement.odd(), ElementsAre(odd));
    EXPECT_FALSE(agreement.tied());
    EXPECT_EQ(agreement.elements(), 58);
  }
}

TEST(DataAgreementTest, OneAgainstOneIsTiedAndTheFirstCounts) {
  DataAgreement agreement;
  agreement.Note(4, Size(58));
  agreement.Note(0, Size(56));
  EXPECT_TRUE(agreement.tied());
  EXPECT_THAT(agreement.odd(), ElementsAre(0));
  EXPECT_TRUE(absl::StrContains(agreement.Difference("ratings").message(),
                                "data source \"ratings\" differs between workers (58 elements at "
                                "worker 4, 56 at worker 0). "));
  // The files of worker 0 have been corrected.
  agreement.Note(0, Size(58));
  EXPECT_THAT(agreement.odd(), IsEmpty());
}

TEST(DataAgreementTest, TheErrorNamesTheSourceTheWorkersAndWhatToDo) {
  DataAgreement agreement;
  agreement.Note(4, Beginning(1));
  agreement.Note(0, Beginning(2));
  const absl::Status status = agreement.Difference("ratings");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(),
                                "data source \"ratings\" differs between workers (the first "
                                "elements of worker 0 and worker 4 are not the same). "))
      << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "shuffle with input.seed, and shard nothing"))
      << status;
}

TEST(DataAgreementTest, OneOfTheMostThatComesBackWithOtherDataIsOdd) {
  DataAgreement agreement;
  for (int worker = 0; worker < 3; ++worker) agreement.Note(worker, Size(58));
  agreement.Note(1, Size(56));
  EXPECT_THAT(agreement.odd(), ElementsAre(1));
  agreement.Note(1, {ElementDigest{1, 0, 0}, 58});
  EXPECT_THAT(agreement.odd(), IsEmpty());
}

TEST(DataAgreementTest, WhatIsHeardLaterOfTheSameDataIsAdded) {
  DataAgreement agreement;
  agreement.Note(0, {});
  agreement.Note(0, Size(58));
  EXPECT_EQ(agreement.elements(), 58);
}

TEST(DataAgreementTest, ASizeThatOneKnowsAmongOthersWhoDoNotIsNotBelieved) {
  DataAgreement agreement;
  agreement.Note(3, Size(58));
  agreement.Note(0, {});
  EXPECT_EQ(agreement.elements(), std::nullopt);
  agreement.Note(1, Size(58));
  EXPECT_EQ(agreement.elements(), 58);
}

TEST(DataAgreementTest, AWorkerThatOpensItAnewIsComparedWithItself) {
  DataAgreement agreement;
  agreement.Note(4, Beginning(1));
  agreement.Note(4, Beginning(2));
  EXPECT_TRUE(agreement.tied());
  EXPECT_TRUE(
      absl::StrContains(agreement.Difference("ratings").message(),
                        "the first elements of worker 4, which opened it twice, are not the same"))
      << agreement.Difference("ratings");
}

}  // namespace
}  // namespace divvy
