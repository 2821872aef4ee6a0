// SPDX-License-Identifier: Apache-2.0
#include "core/quality.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/names.h"
#include "core/status.h"
#include "core/strings.h"

namespace kvr {
namespace {

constexpr std::string_view kRelativeError = ".relative_error";

std::string ValueText(double value) {
  if (!std::isfinite(value)) return "nan";
  char text[32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof text, value);
  return {text, end.ptr};
}

bool ParseValue(std::string_view text, double* value) {
  if (text == "nan") {
    *value = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  const std::from_chars_result end =
      std::from_chars(text.data(), text.data() + text.size(), *value);
  return end.ec == std::errc() && end.ptr == text.data() + text.size() && std::isfinite(*value);
}

bool IsMeasureName(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '.';
  });
}

}  // namespace

std::string QualityText(absl::Span<const QualityMeasure> measures) {
  std::string text;
  for (const QualityMeasure& measure : measures) {
    StrAppend(&text, text.empty() ? "" : ",", measure.name, "=", ValueText(measure.value));
  }
  return text;
}

absl::StatusOr<std::vector<QualityMeasure>> ParseQuality(std::string_view text) {
  std::vector<QualityMeasure> measures;
  if (text.empty()) return measures;
  for (std::string_view figure : Split(text, ',')) {
    const size_t equals = figure.find('=');
    QualityMeasure measure{std::string(figure.substr(0, equals)), 0};
    if (equals == std::string_view::npos || !IsMeasureName(measure.name) ||
        !ParseValue(figure.substr(equals + 1), &measure.value)) {
      return Error(absl::StatusCode::kInvalidArgument,
                   StrCat("no quality figure: ", Quoted(figure)),
                   "write NAME=NUMBER, as in rows_changed=0.5");
    }
    measures.push_back(std::move(measure));
  }
  return measures;
}

std::string QualityLine(absl::Span<const QualityMeasure> measures) {
  std::string line;
  for (const QualityMeasure& measure : measures) {
    StrAppend(&line, line.empty() ? "" : ", ", measure.name,
              absl::StrFormat(" %.3g", measure.value));
  }
  return line;
}

std::string WorstErrorText(absl::Span<const QualityMeasure> measures) {
  double worst = -1;
  for (const QualityMeasure& measure : measures) {
    if (!std::string_view(measure.name).ends_with(kRelativeError)) continue;
    if (!std::isfinite(measure.value)) return "no bound";
    worst = std::max(worst, measure.value);
  }
  return worst < 0 ? "-" : absl::StrFormat("%.3g %%", 100 * worst);
}

void QualityMean::Add(absl::Span<const QualityMeasure> measures) {
  if (rounds_++ == 0) {
    sums_.assign(measures.begin(), measures.end());
    return;
  }
  for (size_t i = 0; i < sums_.size() && i < measures.size(); ++i) {
    sums_[i].value += measures[i].value;
  }
}

std::vector<QualityMeasure> QualityMean::mean() const {
  std::vector<QualityMeasure> mean = sums_;
  for (QualityMeasure& measure : mean) measure.value /= rounds_;
  return mean;
}

}  // namespace kvr
