package dev.topicbinding.job;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.DateTimeException;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.StructType;

/**
 * Reads one Kafka value as a row: exactly the meaning of docs/spark-job.md, in one pass over the text.
 *
 * <p>The value must be one JSON object; declared fields are taken, others skipped. A field of another type becomes null and
 * makes the row a bad one, a value that is no JSON object becomes a row of nulls. Nothing here throws.
 *
 * <p>Called from Python: {@code transform.rows_of}.
 */
public final class RecordParser implements UDF1<byte[], Row> {
  private static final long serialVersionUID = 1L;
  /** RFC 3339, and the same without a zone, which is then UTC. */
  private static final Pattern TIME =
      Pattern.compile(
          "(\\d{4})-(\\d\\d)-(\\d\\d)[T ](\\d\\d):(\\d\\d):(\\d\\d)(?:\\.(\\d{1,9}))?(Z|([+-])(\\d\\d):(\\d\\d))?");
  /** Milliseconds of the years 1 to 9999: what every reader of the tables can show. */
  private static final long FIRST_TIME = -62_135_596_800_000L;
  private static final long LAST_TIME = 253_402_300_799_999L;
  /** Before the declared columns: flags, and the beginning of a bad value. */
  private static final int LEADING = 2;

  private enum Kind {
    STRING,
    LONG,
    DOUBLE,
    BOOLEAN,
    TIMESTAMP
  }

  private final String[] names;
  private final Kind[] kinds;
  private final int badFlag;
  private final int tombstoneFlag;
  private final int rawLength;
  private transient JsonFactory factory;
  private transient Map<String, Integer> places;

  private RecordParser(List<String> names, List<String> kinds, int badFlag, int tombstoneFlag, int rawLength) {
    this.names = names.toArray(new String[0]);
    this.kinds = kinds.stream().map(each -> Kind.valueOf(each.toUpperCase(java.util.Locale.ROOT))).toArray(Kind[]::new);
    this.badFlag = badFlag;
    this.tombstoneFlag = tombstoneFlag;
    this.rawLength = rawLength;
  }

  /**
   * @param records has a binary column {@code value}
   * @param names declared fields, {@code kinds} their types
   * @param result the row's type: flags, the beginning of a bad value, and a column for each field
   * @return the records with a column {@code parsed}
   */
  public static Dataset<Row> parse(
      Dataset<Row> records,
      List<String> names,
      List<String> kinds,
      StructType result,
      int badFlag,
      int tombstoneFlag,
      int rawLength) {
    RecordParser parser = new RecordParser(names, kinds, badFlag, tombstoneFlag, rawLength);
    return records.withColumn("parsed", functions.udf(parser, result).apply(functions.col("value")));
  }

  @Override
  public Row call(byte[] value) {
    Object[] row = new Object[LEADING + names.length];
    row[0] = 0;
    if (value == null) {
      row[0] = tombstoneFlag;
      return RowFactory.create(row);
    }
    String text = new String(value, StandardCharsets.UTF_8);
    boolean good;
    try {
      good = read(text, row);
    } catch (IOException e) {
      Arrays.fill(row, LEADING, row.length, null);
      good = false;
    }
    if (!good) {
      row[0] = badFlag;
      row[1] = beginning(text);
    }
    return RowFactory.create(row);
  }

  /** Fills the row; returns whether every declared field was what it should be. */
  private boolean read(String text, Object[] row) throws IOException {
    if (factory == null) {
      factory = new JsonFactory();
      places = new HashMap<>();
      for (int i = 0; i < names.length; i++) {
        places.put(names[i], i);
      }
    }
    long wrong = 0;
    boolean manyWrong = false;
    try (JsonParser parser = factory.createParser(text)) {
      if (parser.nextToken() != JsonToken.START_OBJECT) {
        return false;
      }
      while (parser.nextToken() == JsonToken.FIELD_NAME) {
        Integer place = places.get(parser.currentName());
        JsonToken token = parser.nextToken();
        if (place != null) {
          Object taken = token == JsonToken.VALUE_NULL ? null : taken(parser, token, kinds[place]);
          row[LEADING + place] = taken;
          // Of a field that is given twice the last one counts, so its trouble does too.
          boolean isWrong = taken == null && token != JsonToken.VALUE_NULL;
          if (place < Long.SIZE) {
            wrong = isWrong ? wrong | 1L << place : wrong & ~(1L << place);
          } else {
            manyWrong |= isWrong;
          }
        }
        parser.skipChildren();
      }
      if (parser.nextToken() != null) {
        Arrays.fill(row, LEADING, row.length, null);
        return false;
      }
    }
    return wrong == 0 && !manyWrong;
  }

  /** The value if it is of the kind, else null. */
  private static Object taken(JsonParser parser, JsonToken token, Kind kind) throws IOException {
    switch (kind) {
      case STRING:
        return token == JsonToken.VALUE_STRING ? parser.getText() : null;
      case LONG:
        return isLong(parser, token) ? parser.getLongValue() : null;
      case DOUBLE:
        if (!token.isNumeric()) {
          return null;
        }
        double number = parser.getDoubleValue();
        return Double.isInfinite(number) ? null : number;
      case BOOLEAN:
        return token.isBoolean() ? parser.getBooleanValue() : null;
      default:
        if (isLong(parser, token)) {
          return inRange(parser.getLongValue());
        }
        return token == JsonToken.VALUE_STRING ? moment(parser.getText()) : null;
    }
  }

  private static boolean isLong(JsonParser parser, JsonToken token) throws IOException {
    return token == JsonToken.VALUE_NUMBER_INT && parser.getNumberType() != JsonParser.NumberType.BIG_INTEGER;
  }

  private static Long inRange(long millis) {
    return millis >= FIRST_TIME && millis <= LAST_TIME ? millis : null;
  }

  private static Long moment(String text) {
    Matcher found = TIME.matcher(text);
    if (!found.matches()) {
      return null;
    }
    try {
      LocalDateTime local =
          LocalDateTime.of(
              number(found, 1), number(found, 2), number(found, 3), number(found, 4), number(found, 5), number(found, 6));
      long millis = local.toEpochSecond(ZoneOffset.UTC) * 1000;
      if (found.group(7) != null) {
        millis += Integer.parseInt((found.group(7) + "00").substring(0, 3));
      }
      if (found.group(9) != null) {
        int hours = number(found, 10);
        int minutes = number(found, 11);
        if (hours > 23 || minutes > 59) {
          return null;
        }
        long ahead = (hours * 60L + minutes) * 60_000;
        millis += "+".equals(found.group(9)) ? -ahead : ahead;
      }
      return inRange(millis);
    } catch (DateTimeException e) {
      return null;
    }
  }

  private static int number(Matcher found, int group) {
    return Integer.parseInt(found.group(group));
  }

  private String beginning(String text) {
    int length = text.codePointCount(0, text.length());
    return length <= rawLength ? text : text.substring(0, text.offsetByCodePoints(0, rawLength));
  }
}
